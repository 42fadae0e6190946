"""The families that can be served."""

from chairlift.models.families.cohere import COHERE2
from chairlift.models.families.exaone import EXAONE4
from chairlift.models.families.gemma import GEMMA2, GEMMA3
from chairlift.models.families.gemma4 import GEMMA4, GEMMA4_UNIFIED
from chairlift.models.families.glm import GLM4
from chairlift.models.families.granite import GRANITE, GRANITE4
from chairlift.models.families.llama import LLAMA, MISTRAL
from chairlift.models.families.ministral import MINISTRAL3
from chairlift.models.families.mixtures.deepseek import DEEPSEEK2, DEEPSEEK3, GLM4_LITE
from chairlift.models.families.mixtures.glm_moe import GLM4_MOE
from chairlift.models.families.mixtures.gpt_oss import GPT_OSS
from chairlift.models.families.mixtures.mixtral import MIXTRAL
from chairlift.models.families.mixtures.qwen_moe import QWEN3_MOE
from chairlift.models.families.olmo import OLMO2, OLMO3
from chairlift.models.families.phi import PHI3
from chairlift.models.families.qwen import QWEN2, QWEN3
from chairlift.models.families.qwen_hybrid import QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT
from chairlift.models.families.seed import SEED_OSS
from chairlift.models.families.smollm import SMOLLM3
from chairlift.models.families.starcoder import STARCODER2

FAMILIES = (
    LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, GEMMA3, GEMMA4, GEMMA4_UNIFIED, PHI3, GRANITE, GRANITE4, SMOLLM3, GLM4,
    OLMO2, OLMO3, EXAONE4, SEED_OSS, MINISTRAL3, COHERE2, STARCODER2, MIXTRAL, QWEN3_MOE, GLM4_MOE, GPT_OSS,
    QWEN3_NEXT, QWEN3_5, QWEN3_5_MOE, DEEPSEEK2, DEEPSEEK3, GLM4_LITE,
)  # fmt: skip
BY_ARCHITECTURE = {family.architecture: family for family in FAMILIES}
BY_MODEL_TYPE = {family.model_type: family for family in FAMILIES}
BY_GGUF = {family.gguf: family for family in FAMILIES if family.gguf}

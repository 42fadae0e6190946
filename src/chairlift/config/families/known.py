"""The families that can be served."""

from chairlift.config.families.gemma import GEMMA2, GEMMA3
from chairlift.config.families.glm import GLM4
from chairlift.config.families.glm_moe import GLM4_MOE
from chairlift.config.families.gpt_oss import GPT_OSS
from chairlift.config.families.granite import GRANITE, GRANITE4
from chairlift.config.families.llama import LLAMA, MISTRAL
from chairlift.config.families.mixtral import MIXTRAL
from chairlift.config.families.phi import PHI3
from chairlift.config.families.qwen import QWEN2, QWEN3
from chairlift.config.families.qwen_moe import QWEN3_MOE
from chairlift.config.families.smollm import SMOLLM3

FAMILIES = (
    LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA2, GEMMA3, PHI3, GRANITE, GRANITE4, SMOLLM3, GLM4, MIXTRAL, QWEN3_MOE,
    GLM4_MOE, GPT_OSS,
)  # fmt: skip
BY_ARCHITECTURE = {family.architecture: family for family in FAMILIES}
BY_MODEL_TYPE = {family.model_type: family for family in FAMILIES}
BY_GGUF = {family.gguf: family for family in FAMILIES if family.gguf}

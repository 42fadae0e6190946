#!/bin/sh
# Load testers and evaluations of others against a server: sh tests/clients/tools.sh URL TOKENIZER
# TOKENIZER is a folder with the model's tokenizer.json. Those of guidellm, aiperf, vllm and lm_eval that are not on the PATH are left out.
set -eu
url=$1 tokenizer=$(cd "$2" && pwd)
model=$(curl -s "$url/v1/models" | sed 's/.*"data":\[{"id":"\([^"]*\)".*/\1/')
cd "$(dirname "$0")/lm_eval"
out=$(mktemp -d)

has() { command -v "$1" > "$out/which" || { echo "left out: $1"; return 1; }; }

if has guidellm; then
    for route in /v1/chat/completions /v1/completions /v1/responses; do
        guidellm run --backend "kind=openai_http,target=$url,request_format=$route" \
            --tokenizer "kind=huggingface_auto,model=$tokenizer" \
            --data kind=synthetic_text,prompt_tokens=64,output_tokens=16 \
            --data-loader kind=pytorch,samples=32,num_workers=1,prefetch_factor=8 \
            --profile kind=concurrent,streams=2 --constraint kind=max_requests,count=8 --disable-progress \
            --output kind=console
    done
fi
if has aiperf; then
    for kind in chat completions responses messages; do
        aiperf profile --model "$model" --url "$url" --endpoint-type $kind --streaming --tokenizer "$tokenizer" \
            --concurrency 2 --request-count 8 --isl 64 --osl 16 --ui none --artifact-dir "$out/$kind"
    done
fi
if has vllm; then
    for kind in "openai" "openai-chat --endpoint /v1/chat/completions"; do
        vllm bench serve --base-url "$url" --model "$model" --tokenizer "$tokenizer" --backend $kind \
            --dataset-name random --random-input-len 64 --random-output-len 16 --num-prompts 8 --max-concurrency 2 --ignore-eos
    done
fi
if has lm_eval; then
    lm_eval run --model local-completions --tasks few_choice few_generate few_rolling --include_path . --batch_size 4 \
        --model_args "model=$model,base_url=$url/v1/completions,tokenizer_backend=remote"
    lm_eval run --model local-chat-completions --tasks few_generate --include_path . --apply_chat_template \
        --model_args "model=$model,base_url=$url/v1/chat/completions"
fi

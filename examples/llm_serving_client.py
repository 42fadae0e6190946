"""Read an llm-serving stream, line by line, with nothing but the standard library."""

import json
import urllib.request

request = urllib.request.Request(
    "http://127.0.0.1:8000/models/llama2/generate_stream",
    data=json.dumps(
        {
            "inputs": "Once upon a time",
            "parameters": {"max_new_tokens": 24, "do_sample": "False", "return_full_text": "False"},
        }
    ).encode(),
    headers={"Content-Type": "application/json"},
)
with urllib.request.urlopen(request) as lines:
    for line in lines:
        print(json.loads(line)["data"][0]["generated_text"], end="", flush=True)
print()

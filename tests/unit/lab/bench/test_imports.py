import subprocess
import sys


def test_no_client_process_loads_torch() -> None:
    modules = "chairlift.cli.bench, chairlift.lab.bench.client, chairlift.lab.bench.run, chairlift.lab.bench.page"
    code = f"import sys, {modules}; print([name for name in ('torch', 'numpy', 'starlette') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"

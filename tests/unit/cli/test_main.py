import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chairlift.cli.commands import GROUPS
from chairlift.cli.completion import SHELLS
from chairlift.cli.inputs.flags import flags_of
from chairlift.cli.main import _parser, main
from chairlift.config.options.resolve import OPTIONS
from chairlift.core.errors import InvalidConfig
from chairlift.runner import kernels
from fakes.gpu import GIB, FakeGpu
from fakes.one_parser import forget


def test_help_fits_on_one_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert end.value.code == 0
    assert len(lines) <= 50
    assert all(len(line) <= 80 for line in lines)
    for title, commands in GROUPS.items():
        start = lines.index(f"{title}:") + 1
        listed = [line.split()[0] for line in lines[start : lines.index("", start)] if line[2] != " "]
        assert listed == list(commands)


def test_the_program_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--help"])
    assert alone == capsys.readouterr().out


def test_a_model_behind_served_names_is_not_taken_for_one() -> None:
    with pytest.raises(InvalidConfig, match="a/b would be another name; give MODEL before the options"):
        flags_of(_parser().parse_args(["serve", "--served-model-name", "x", "a/b"]))
    assert flags_of(_parser().parse_args(["serve", "a/b", "--served-model-name", "x", "c/d"]))["model"] == "a/b"


@pytest.mark.parametrize("command", ["serve", "chat", "plan", "verify", "calibrate", "tune", "node"])
def test_a_model_may_be_an_argument(command: str) -> None:
    needed = {"calibrate": ["--out", "x"], "verify": ["--against", "batch"]}.get(command, [])
    options = _parser().parse_args([command, "org/name", *needed])
    assert flags_of(options)["model"] == "org/name"


def test_a_model_may_follow_the_options_and_be_given_twice_if_the_same() -> None:
    assert flags_of(_parser().parse_args(["serve", "--port", "1", "a/b", "--exact"]))["model"] == "a/b"
    assert flags_of(_parser().parse_args(["serve", "a/b", "--model", "a/b"]))["model"] == "a/b"
    with pytest.raises(InvalidConfig, match="MODEL a/b and --model c/d are different models"):
        flags_of(_parser().parse_args(["serve", "a/b", "--model", "c/d"]))


def test_serve_has_a_flag_for_every_option_but_those_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    assert [option.flag for option in OPTIONS if not re.search(rf"^  {option.flag}[ ,\n]", text, re.M)] == [
        "--join",
        "--address",
    ]
    assert re.findall(r"\(default:[^()]*\)\s+\(default:[^()]*\)", text) == []
    assert "(default: the embedded SmolLM2-135M-Instruct)" in " ".join(text.replace("-\n", "-").split())


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from chairlift.cli.main import main\n"
        "try:\n    main(['serve', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'starlette', 'tokenizers', 'huggingface_hub'} & set(sys.modules)\n"
        "sys.exit(f'loaded {sorted(heavy)}' if heavy else 0)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr == ""


def test_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("chairlift ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["serve", "--device", "tpu"],
            "one of auto, cpu, cuda, mindspore, mindspore:cpu, mindspore:ascend, mps, xpu, npu, got 'tpu'",
        ),
        pytest.param(
            ["serve", "--device", "cuda"],
            "device cuda: torch sees no CUDA device here; use --device cpu",
            marks=pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is one"),
        ),
        (["serve", "--config", "/no/such.yaml"], "/no/such.yaml: cannot be read"),
        (["serve", "--model", "/no/such/folder"], "/no/such/folder: no such file or folder"),
        (["generate", "--model", "/no/such/folder", "hi"], "/no/such/folder: no such file or folder"),
        (["chat", "--model", "/no/such/folder"], "/no/such/folder: no such file or folder"),
        (["generate", "--file", "/no/such.txt"], "/no/such.txt: cannot be read"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("chairlift: error: ")
    assert complaint in error
    assert error.count("\n") == 1


def test_an_environment_mistake_names_the_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAIRLIFT_PORT", "ninety")
    assert main(["serve"]) == 2
    assert "CHAIRLIFT_PORT must be a whole number" in capsys.readouterr().err


def test_flags_may_not_be_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["serve", "--max-run", "3"])
    assert end.value.code == 2
    assert "unrecognized option: --max-run (did you mean --max-running?)" in capsys.readouterr().err


def test_a_flag_unlike_any_other_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--xyzzy"])
    assert capsys.readouterr().err.endswith("unrecognized option: --xyzzy\n")


def test_an_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("chairlift.cli.serve.settings_from", interrupted)
    assert main(["serve"]) == 130
    assert capsys.readouterr().err == ""


def test_doctor_reports_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"machine", "instructions", "versions", "model", "would use"}
    assert report["versions"]["python"] == sys.version.split()[0]
    assert "SmolLM2-135M-Instruct" in report["model"]["embedded"]
    assert set(report["would use"]) == {"device", "dtype", "kernels"}
    assert report["would use"]["dtype"] in text


def test_doctor_says_why_kernels_cannot_be_used_and_the_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(kernels, "why_not_native", lambda: "were not built; install gcc")
    assert main(["doctor", "--json"]) == 0
    used = json.loads(capsys.readouterr().out)["would use"]
    assert used["kernels"] == "torch (the native ones were not built; install gcc)"


def test_doctor_on_a_gpu_says_how_much_of_it_would_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeGpu(total=80 * GIB, taken=2 * GIB)
    gpu.install(monkeypatch)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "A GPU")
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["gpu 0"] == "A GPU, 80.0 GiB, 78.0 GiB free"
    assert report["would use"]["memory"].startswith("0.9 of the GPU's")
    assert report["would use"]["kernels"] == "triton (our own, in Triton)"
    monkeypatch.setattr(kernels, "why_not_triton_compiles", lambda: "need a C compiler")
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["would use"]["kernels"] == "torch (the triton ones need a C compiler)"
    gpu.capability = (7, 0)
    assert main(["doctor"]) == 0
    assert "none: kernels auto: this GPU has compute capability 7.0" in capsys.readouterr().out


def test_a_warning_of_the_configuration_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "llm.yaml"
    path.write_text("model_config: {zactivate_len: [512]}")
    main(["generate", "--config", str(path), "--model", "/no/such/folder", "hi"])
    error = capsys.readouterr().err
    assert "chairlift: warning: " in error
    assert "model_config.zactivate_len" in error


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_help_has_colours_on_a_terminal_that_wants_them(
    variables: dict[str, str], is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "80"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", out := Terminal())
    assert main([]) == 0
    assert ("\x1b[" in out.getvalue()) == is_coloured
    assert "serve and talk:" in re.sub(r"\x1b\[\d*m", "", out.getvalue())


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_options_and_their_values_but_no_foreign_names(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    forget()
    script = capsys.readouterr().out
    assert "max-step-tokens" in script
    assert "bfloat16" in script
    assert "max-num-seqs" not in script


@pytest.mark.parametrize(("name", "close"), [("srve", " (did you mean serve?)"), ("xyzzy", "")])
def test_an_unknown_command_is_one_line(name: str, close: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name])
    assert end.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {name} is no command{close}; `chairlift` alone lists them\n")


def test_options_may_be_written_with_underscores(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--max_model_len=4_k", "--no_such_thing", "1"])
    assert "unrecognized option: --no-such-thing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", "one", "--", "--a_file"])
    assert "--a_file" in capsys.readouterr().err


def test_a_second_file_of_options_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--config", "one.yaml", "--config", "two.yaml"])
    assert "--config: may be given once; put both into one file, or use flags" in capsys.readouterr().err

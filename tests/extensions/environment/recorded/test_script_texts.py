"""What is kept of launch scripts, settings and environment variables, and what no one else should read."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.environment.environment import (
    allowed_variables,
    arguments_without_secrets,
    without_secrets,
    write_environment,
)


@pytest.mark.parametrize(
    "text",
    [
        "export WANDB_API_KEY=deadbeef",
        "api_key: deadbeef",
        'train --hf-token "deadbeef" --lr 1',
        "{db_password: deadbeef, lr: 1}",
        "aws_secret_access_key = 'deadbeef'",
        "url: https://me:deadbeef@host/data",
        "export AWS_SESSION_TOKEN=deadbeef",
        "export TOKEN=deadbeef",
        "upload --token deadbeef",
        "api_keys: [deadbeef]",
        "MYSQL_PWD=deadbeef",
        "PASSWORD=ab,deadbeef",
        'PASSWORD="a\\"deadbeef"',
        "--password 'it'\"'\"'s deadbeef'",
        "wandb login 0123456789deadbeef0123456789",
        "curl -H 'Authorization: Bearer deadbeef'",
        "key: |\n  -----BEGIN RSA PRIVATE KEY-----\n  deadbeef\n  -----END RSA PRIVATE KEY-----",
    ],
)
def test_the_value_of_a_secret_is_left_out_of_a_text(text: str) -> None:
    assert "deadbeef" not in without_secrets(text)


@pytest.mark.parametrize(
    "text",
    [
        "--tokenizer-type gpt",
        "max_tokens: 4096",
        "--key-value-heads 8",
        "monkey = 1",
        "pad_token: x",
        "loss per token --lr 1",
    ],
)
def test_what_only_sounds_like_a_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_secrets_are_left_out_of_nested_settings() -> None:
    settings = {"lr": 0.1, "wandb": {"api_key": "deadbeef", "tags": ["x", None]}, "made_by": object}
    reported = arguments_without_secrets(settings)
    assert reported == {"lr": 0.1, "wandb": {"api_key": "(hidden)", "tags": ["x", None]}, "made_by": "<class 'object'>"}


def test_variables_are_those_that_are_allowed_and_no_secrets() -> None:
    process = {
        "NCCL_ALGO": "Ring",
        "HOME": "/home",
        "NCCL_API_KEY": "x",
        "HF_TOKEN": "x",
        "MY_FLAG": "1",
        "MS_AUTH": "",
    }
    process["TORCH_HOME"] = "https://me:deadbeef@host"
    found = allowed_variables(["MY_*", "HF_*"], within=process)
    assert found == {"MY_FLAG": "1", "NCCL_ALGO": "Ring", "TORCH_HOME": "https://host"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps is 0; allowed: an integer >= 1"),
        ({"files": ["train.py"]}, "files is 'train.py'; allowed: names ending in .sh, .yaml, .yml"),
        ({"files": ["none.sh"]}, r"files: .* cannot be read: No such file or directory"),
        ({"settings": 3}, "settings is 3; allowed: a mapping or a namespace"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(tmp_path: Path, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write_environment(tmp_path, **wrong)  # type: ignore[arg-type]

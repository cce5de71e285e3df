from __future__ import annotations

import json

import pytest

from msprobe_hooks import ConfigError
from msprobe_hooks.recording.config import read_config, settings


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("task", "exception_dumps", "statistics, tensor, structure, overflow_check, nan_check"),
        ("overflow_nums", 0, "an integer >= 1, or -1"),
        ("overflow_nums", -2, "an integer >= 1, or -1"),
        ("overflow_nums", True, "an integer >= 1, or -1"),
        ("overflow_nums", 1.0, "an integer >= 1, or -1"),
        ("level", "L3", "L0, L1, L2, mix, debug, aten"),
        ("rank", "0", "a list of numbers"),
        ("rank", [True], "a list of numbers"),
        ("rank", [-1], "a list of numbers"),
        ("step", ["3-1"], 'ranges such as "3-5"'),
        ("step", [2_000_000], "0 to 1000000"),
        ("list", "relu", "a list of names"),
        ("list", [3], "a list of names"),
        ("data_mode", ["all", "input"], '"all" alone'),
        ("data_mode", ["inputs"], "all, input, output, forward, backward"),
        ("summary_mode", "crc", "statistics, md5, xor"),
        ("tensor_list", 5, "a list of names"),
        ("async_dump", "yes", "true or false"),
        ("extra_info", 1, "true or false"),
        ("risk_level", "HIGH", "ALL, FOCUS, CORE"),
        ("compression", "gzip", "none, zstd"),
        ("compression", True, "none, zstd"),
        ("compression", "zstd", "none, or zstd with tensor_files safetensors"),
        ("scope", ["Torch.mm.0.forward"], "two record names"),
        ("scope", ["Torch.mm", "Torch.add.0.forward"], "Type.api.0.forward"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed(tmp_path, key, value, allowed):
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, **{key: value})
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key} is ")
    assert allowed in str(caught.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("levl", "record() has no option 'levl'; did you mean 'level'?"),
        ("Model", "record() has no option 'Model'; did you mean 'model'?"),
        ("colour", "record() has no option 'colour'; known: async_dump, compression, "),
    ],
)
def test_an_unknown_option_names_the_closest_one_or_else_all(tmp_path, option, text):
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, **{option: "mix"})
    assert caught.value.key == option
    assert str(caught.value).startswith(text)


def test_an_unknown_value_names_the_closest_one(tmp_path):
    with pytest.raises(ConfigError, match=r"task is 'tensors'; .*; did you mean 'tensor'\?$"):
        settings(tmp_path, task="tensors")
    with pytest.raises(ConfigError, match=r"level is 'MIX'; allowed: L0, .*; did you mean 'mix'\?$"):
        settings(tmp_path, level="MIX")


def test_an_unknown_key_of_a_file_names_the_file_and_the_closest_key(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"steps": [0]}')
    with pytest.raises(ConfigError) as caught:
        read_config(file)
    assert str(caught.value) == f"{file}: unknown key 'steps'; did you mean 'step'?"


def test_module_names_are_no_scope_of_level_l1(tmp_path):
    scope = ["Module.a.Linear.forward.0", "Module.b.Linear.forward.0"]
    assert settings(tmp_path, level="L0", scope=scope).scope == tuple(scope)
    with pytest.raises(ConfigError, match="scope"):
        settings(tmp_path, level="L1", scope=scope)


@pytest.mark.parametrize(
    ("given", "numbers"),
    [([], None), ([0, 2], {0, 2}), (["1-3", 7], {1, 2, 3, 7}), (["5"], {5})],
)
def test_ranges_are_expanded(tmp_path, given, numbers):
    assert settings(tmp_path, step=given).step == numbers


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (["all"], (True, True, True, True)),
        (["backward"], (False, True, True, True)),
        (["forward", "input"], (True, False, True, False)),
        (["output"], (True, True, False, True)),
    ],
)
def test_what_data_mode_leaves_open_is_completed(tmp_path, modes, expected):
    wanted = settings(tmp_path, data_mode=modes).directions
    assert (wanted.forward, wanted.backward, wanted.input, wanted.output) == expected


def write(folder, **content):
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def test_a_config_of_msprobe_is_understood(tmp_path):
    path = write(
        tmp_path,
        task="statistics",
        dump_path=str(tmp_path / "out"),
        rank=[],
        step=["0-1"],
        level="mix",
        enable_dataloader=False,
        async_dump=False,
        statistics={"scope": [], "list": ["relu"], "data_mode": ["all"], "summary_mode": "md5"},
        tensor={"scope": [], "list": [], "data_mode": ["all"], "file_format": "npy"},
        overflow_check={"overflow_nums": 1},
    )
    found = read_config(path)
    assert (found.level, found.step, found.list, found.summary_mode) == ("mix", {0, 1}, ("relu",), "md5")


def test_arguments_win_over_the_file(tmp_path):
    path = write(tmp_path, task="statistics", dump_path="elsewhere", level="L0", step=[1])
    found = read_config(path, level="L1", dump_path=tmp_path, step=[3])
    assert (found.level, found.dump_path, found.step) == ("L1", tmp_path, {3})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"task": "tensor", "tensor": {"online_run_ut": True}}, r"tensor\.online_run_ut is True; allowed: false"),
        ({"statistics": {"slice": [{"dim": 0, "size": 4}]}}, r"statistics\.slice is .* whole tensors"),
        ({"statistics": {"request_id": "a"}}, r"statistics\.request_id is 'a'"),
        ({"statistics": {"bench_path": "x"}}, r"statistics\.bench_path is 'x'; .* --msprobe-compare"),
        ({"statistics": {"backward_input": ["x.pt"]}}, r"statistics\.backward_input is .* level L2"),
        ({"acl_config": "acl.json"}, r"acl_config is 'acl.json'; not supported; level L2"),
        (
            {"task": "nan_check", "nan_check": {"tensor_list": ["a"]}},
            r"tensor_list is \['a'\]; not supported with task",
        ),
        ({"task": "overflow_check", "overflow_check": {"data_mode": ["input"]}}, r"data_mode is \['input'\]; not"),
    ],
)
def test_a_key_of_msprobe_that_changes_what_is_written_is_refused_by_name(tmp_path, content, text):
    with pytest.raises(ConfigError, match=text):
        read_config(write(tmp_path, **content))


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ({"seed": 1234}, "seed is ignored, as recording changes nothing; call seed_all(seed) in the script"),
        ({"is_deterministic": True}, "is_deterministic is ignored, as recording changes nothing; call seed_all("),
        ({"enable_dataloader": True}, "enable_dataloader is ignored, as recording changes nothing; call start()"),
    ],
)
def test_a_key_that_msprobe_ignores_is_ignored_with_the_remedy(tmp_path, caplog, content, remedy):
    with caplog.at_level("WARNING", "msprobe_hooks"):
        found = read_config(write(tmp_path, **content))
        read_config(tmp_path / "config.json")
    assert caplog.text.count(remedy) == 1
    assert found == read_config(write(tmp_path))


def test_keys_of_msprobe_that_change_nothing_are_taken(tmp_path):
    path = write(
        tmp_path,
        task="tensor",
        enable_dataloader=False,
        is_deterministic=False,
        precision="high",
        custom_op_namespaces=["mine"],
        tensor={"file_format": "npy", "online_run_ut": False, "nfs_path": "", "host": "", "port": -1, "diff_nums": 1},
        run_ut={"white_list": []},
    )
    assert read_config(path).custom_op_namespaces == ("mine",)


@pytest.mark.parametrize("task", ["statistics", "tensor", "structure", "overflow_check", "nan_check"])
def test_values_that_change_nothing_are_taken_in_the_section_of_each_task(tmp_path, task):
    section = {
        "list": [],
        "scope": [],
        "tensor_list": [],
        "data_mode": ["all"],
        "summary_mode": "statistics",
        "backward_input": [],
    }
    path = write(tmp_path, task=task, level="", acl_config="", load={}, **{task: section})
    assert read_config(path) == read_config(write(tmp_path, task=task))


def test_an_empty_data_mode_means_all_of_it(tmp_path):
    assert read_config(write(tmp_path, statistics={"data_mode": []})).data_mode == ("all",)


@pytest.mark.parametrize(
    ("task", "instead"),
    [
        ("diff_check", "--msprobe-compare"),
        ("exception_dump", "task statistics"),
    ],
)
def test_a_task_of_msprobe_that_records_nothing_here_names_what_replaces_it(tmp_path, task, instead):
    with pytest.raises(ConfigError, match=f"task is '{task}'; not supported; .*{instead}"):
        read_config(write(tmp_path, task=task, **{task: {"white_list": []}}))


def test_what_is_excluded_is_read_from_the_section_of_the_task(tmp_path):
    assert read_config(write(tmp_path, statistics={"exclude": ["Tensor.t"]})).exclude == ("Tensor.t",)


def test_a_file_without_a_task_means_statistics(tmp_path):
    assert read_config(write(tmp_path, dump_path="d")).task == "statistics"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"tusk": "tensor"}, r"unknown key 'tusk'; did you mean 'task'\?"),
        ({"statistics": {"lst": []}}, r"statistics has no key 'lst'; did you mean 'list'\?"),
        ({"statistics": []}, None),
        ({"statistics": 3}, "statistics is 3"),
    ],
)
def test_a_wrong_file_says_which_key(tmp_path, content, text):
    path = write(tmp_path, **content)
    if text is None:
        assert read_config(path).list == ()
    else:
        with pytest.raises(ConfigError, match=text):
            read_config(path)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("config.yaml", "{}", r"the path of a \.json file"),
        ("config.json", "{", "valid JSON"),
        ("config.json", '{"task": ' + "[" * 5000 + "]" * 5000 + "}", r"config\.json is nested too deeply"),
        ("config.json", "[]", "is not a JSON object, as in"),
        ("config.json", None, "config_path: .*config.json does not exist"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, name, text, problem):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_config(path)


def test_structure_means_modules(tmp_path):
    assert settings(tmp_path, task="structure", level="L1").level == "mix"


def test_checksums_and_async_exclude_each_other(tmp_path):
    with pytest.raises(ConfigError, match="allowed: statistics with async_dump"):
        settings(tmp_path, async_dump=True, summary_mode="md5")


@pytest.mark.parametrize("path", ["a\0", "a\ud800"])
def test_a_path_that_no_folder_can_have_is_named(path):
    with pytest.raises(ConfigError, match=r"dump_path is 'a\\(x00|ud800)'; allowed: the path of a folder"):
        settings(path)


@pytest.mark.parametrize("task", ["overflow_check", "nan_check"])
@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("level", "aten", "L0, L1 or mix with task"),
        ("level", "debug", "L0, L1 or mix with task"),
        ("data_mode", ["output"], "not supported with task"),
        ("summary_mode", "md5", "not supported with task"),
        ("tensor_list", ["relu"], "not supported with task"),
    ],
)
def test_a_search_for_overflow_refuses_what_would_say_nothing_of_it(tmp_path, task, key, value, allowed):
    with pytest.raises(ConfigError, match=f"^{key} is .*{allowed} {task}"):
        settings(tmp_path, task=task, **{key: value})


@pytest.mark.parametrize(
    ("task", "section", "wrong"),
    [
        ("overflow_check", {"overflow_nums": "3"}, "overflow_nums is '3'; allowed: an integer >= 1, or -1"),
        ("overflow_check", {"check_mode": "aicore"}, "overflow_check.check_mode is 'aicore'; allowed: all"),
        ("overflow_check", {"tensor_list": ["x"]}, r"tensor_list is \['x'\]; not supported with task overflow_check"),
        ("overflow_check", {"bounds": [1]}, "overflow_check has no key 'bounds'; known: exclude, list, overflow_nums"),
        ("nan_check", {"overflow_nums": 3}, "nan_check has no key 'overflow_nums'; known: exclude, list, scope"),
        ("statistics", {"overflow_nums": 3}, "statistics has no key 'overflow_nums'; known: data_mode, exclude"),
        ("overflow_check", [1], "an object with the keys overflow_nums"),
    ],
)
def test_the_section_of_a_search_for_overflow_has_keys_of_its_own(tmp_path, task, section, wrong):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"task": task, task: section}))
    with pytest.raises(ConfigError, match=wrong):
        read_config(path)


def test_a_search_for_overflow_follows_its_section(tmp_path):
    path = tmp_path / "config.json"
    section = {"overflow_nums": -1, "check_mode": "all", "list": ["exp"]}
    path.write_text(json.dumps({"task": "overflow_check", "overflow_check": section}))
    found = read_config(path)
    assert (found.overflow_nums, found.list, found.keeps_tensors) == (-1, ("exp",), True)

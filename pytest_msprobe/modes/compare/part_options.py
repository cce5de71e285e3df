"""Options of one part of a comparison, which an extension adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_msprobe.run import option_fields

if TYPE_CHECKING:
    from typing_extensions import Self

    from pytest_msprobe.yaml_with_lines import Section


class PartOptions:
    """Options of a part; a subclass is a frozen dataclass whose fields are declared as `run.option_fields` has them."""

    __slots__ = ()

    @property
    def of_calls(self) -> str:
        """Return the first option that was passed and says how calls are matched; empty where none was."""
        return ""

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        return option_fields.words(self)

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        return option_fields.settings(self)

    def with_mappings(self, sections: Mapping[str, list[Section | None]]) -> Self:
        """Return the options with what mapping files have of their kinds."""
        return self

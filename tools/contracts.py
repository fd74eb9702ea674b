"""A contract for import-linter: which rooms each room may import, as an allow-list. `pyproject.toml` has the lists."""

from typing import Any, cast

from importlinter import Contract, ContractCheck, fields, output

__all__ = ["AllowListContract"]


class AllowListContract(Contract):
    """The children of `container` and what each may import of the others.

    An entry of `rooms` is `room: other other ...`. A child that has no entry, an import that no entry allows and an
    entry that allows what nobody imports each break the contract, so the lists say what is true.
    """

    type_name = "allow_list"

    container = fields.StringField()
    rooms = fields.ListField(subfield=fields.StringField())
    exempt = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph, verbose):  # type: ignore[no-untyped-def]
        """Compare the imports that there are with the lists."""
        del verbose
        container = str(self.container)
        options = cast("Any", self)  # import-linter puts values in the place of fields
        exempt: set[str] = options.exempt or set()
        allowed: dict[str, set[str]] = {}
        for line in options.rooms:
            room, _, others = line.partition(":")
            allowed[room.strip()] = set(others.split())
        there: dict[str, set[str]] = {}
        offences = []
        for child in graph.find_children(container):
            room = child.removeprefix(f"{container}.")
            if room in exempt:
                continue
            there[room] = set()
            for importer in {child, *graph.find_descendants(child)}:
                for imported in graph.find_modules_directly_imported_by(importer):
                    if not imported.startswith(f"{container}."):
                        continue
                    other = imported.removeprefix(f"{container}.").partition(".")[0]
                    if other == room:
                        continue
                    there[room].add(other)
                    if other not in allowed.get(room, ()):
                        offences.append(f"{importer} imports {imported}")
        offences += [f"{container}.{room} has no list" for room in sorted(there.keys() - allowed.keys())]
        offences += [f"{container}.{room} does not exist" for room in sorted(allowed.keys() - there.keys())]
        for room, others in sorted(allowed.items()):
            spare = sorted(others - there.get(room, set()))
            offences += [f"{room} may import {other}, and does not" for other in spare]
        return ContractCheck(kept=not offences, metadata={"offences": sorted(offences)})

    def render_broken_contract(self, check):  # type: ignore[no-untyped-def]
        """Print each offence."""
        for offence in check.metadata["offences"]:
            output.print_error(f"- {offence}")

"""An Iceberg table in its catalog: finds, creates and appends to it, for all code that writes one.

The library must not retry a commit on top of another one, so its retries are disabled in the table: a commit is made
for the loaded state, or fails. Source: the Iceberg table specification, "Optimistic Concurrency".
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.transforms import IdentityTransform

from duramen.base.errors import OptionInvalid, TableForeign, TableUnsupported
from duramen.spark.tables.port import Storage
from duramen.spark.tables.s3 import ENDPOINT, REGION, endpoint_of, region_of
from duramen.spark.tables.schemas import merged, optional
from duramen.spark.tables.storage import TableLocation

__all__ = [
    "ATTEMPTS",
    "IcebergEntry",
    "append",
    "arrow_schema",
    "can_widen",
    "check_columns",
    "has_catalog",
    "has_single_attempts",
    "stored",
]

ATTEMPTS: Final = 20
"""The number of attempts of a change against concurrent ones before it fails."""

_RETRIES: Final = "commit.retry.num-retries"
_PROPERTIES: Final = {
    _RETRIES: "0",
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergEntry:
    """The catalog entry of the table at a location. Its methods raise the library's catalog and storage errors."""

    def __init__(self, storage: Storage, place: TableLocation) -> None:
        """Raises TableUnsupported if no catalog is known for the location."""
        self._options = storage.options
        self._place = place
        self._catalog_of: Catalog | None = None
        name = place.uri.rstrip("/").rsplit("/", 1)[-1].replace(".", "_")
        self._name = (storage.options.get("catalog.namespace", "duramen"), name)
        if not place.is_local and "catalog.uri" not in storage.options:
            raise TableUnsupported(f"an Iceberg table at {place.uri} needs a catalog: give catalog.uri")

    @property
    def name(self) -> str:
        """The table's name in its catalog."""
        return ".".join(self._name)

    def find(self) -> IcebergTable | None:
        """The table, if it exists. Raises TableForeign if the location has other files."""
        try:
            return self._checked(self._catalog().load_table(self._name))
        except NoSuchTableError:
            for found in self._place.list():
                raise TableForeign(
                    f"{self._place.uri} has files and is no table in its catalog: {found.path}"
                ) from None
            return None

    def load(self) -> IcebergTable:
        """The newest state. Raises TableForeign if the table no longer exists."""
        try:
            return self._checked(self._catalog().load_table(self._name))
        except NoSuchTableError as error:
            raise TableForeign(f"the table at {self._place.uri} is gone from its catalog") from error

    def create(
        self, schema: pa.Schema, properties: Mapping[str, str], partition_by: Sequence[str] = ()
    ) -> IcebergTable:
        """Create the table, unless another writer does so first; returns the existing table."""
        catalog = self._catalog()
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._name[0])
        with (
            suppress(TableAlreadyExistsError, CommitFailedException),
            catalog.create_table_transaction(
                self._name, schema, location=self._place.uri, properties={**_PROPERTIES, **properties}
            ) as creating,
            creating.update_spec() as spec,
        ):
            for name in partition_by:
                spec.add_field(name, IdentityTransform(), name)
        return self.load()

    def evolve(self, schema: pa.Schema) -> None:
        """Add the columns that the table lacks, and widen those that are wider in `schema`."""
        for attempt in range(ATTEMPTS):
            table = self.load()
            there = arrow_schema(table)
            if merged(there, [schema])[0].equals(there):
                return
            try:
                with table.update_schema() as changing:
                    changing.union_by_name(schema)
            except CommitFailedException:
                if attempt == ATTEMPTS - 1:
                    raise

    def _checked(self, table: IcebergTable) -> IcebergTable:
        where = self._place.uri
        if table.location().removeprefix("file://").rstrip("/") != where.rstrip("/"):
            raise TableForeign(f"the catalog's table {self.name} is at {table.location()}, not at {where}")
        return table

    def _catalog(self) -> Catalog:
        if self._catalog_of is None:
            properties = {name.removeprefix("catalog."): value for name, value in self._options.items()}
            properties.pop("namespace", None)
            if "uri" not in properties:
                self._place.make_parent()
                warehouse = self._place.uri.rsplit("/", 1)[0]
                properties |= {"type": "sql", "uri": f"sqlite:///{quote(_beside(self._place))}", "warehouse": warehouse}
            if not self._place.is_local and endpoint_of(self._options):
                # Of the environment variables the library knows only the keys.
                properties |= {ENDPOINT: endpoint_of(self._options), REGION: region_of(self._options)}
            properties.setdefault("py-io-impl", "pyiceberg.io.pyarrow.PyArrowFileIO")
            try:
                self._catalog_of = load_catalog("duramen", **properties)
            except ValueError as error:
                if isinstance(error, OSError):  # requests' errors may be both
                    raise
                raise OptionInvalid(f"catalog.uri or catalog.type does not fit: {error}") from error
        return self._catalog_of


def has_catalog(storage: Storage, place: TableLocation) -> bool:
    """Whether the catalog exists: the file next to a directory is created with the first table."""
    return "catalog.uri" in storage.options or not place.is_local or Path(_beside(place)).exists()


def _beside(place: TableLocation) -> str:
    return f"{place.uri.rsplit('/', 1)[0]}/duramen-catalog.db"


def check_columns(schema: pa.Schema) -> None:
    """Let the library create a table of these columns without a commit. Raises its errors."""
    catalog = load_catalog("check", type="in-memory", warehouse="file:///nowhere")
    catalog.create_namespace("check")
    making = catalog.create_table_transaction(("check", "check"), schema, properties=_PROPERTIES)
    # Names are checked on access.
    making.table_metadata.schema().name_mapping.model_dump_json()


def has_single_attempts(table: IcebergTable) -> bool:
    """Whether the library never repeats commits to the table; if it would, that is set now."""
    if table.properties.get(_RETRIES) == "0":
        return True
    table.transaction().set_properties({_RETRIES: "0"}).commit_transaction()
    return False


def append(writing: Transaction, files: Iterable[DataFile], said: Mapping[str, str]) -> None:
    """Add a snapshot with these additional files to an uncommitted transaction.

    It is added even without files: only snapshots make two writers conflict.
    """
    if writing.table_metadata.name_mapping() is None:
        # The files do not have the numbers of columns.
        mapping = writing.table_metadata.schema().name_mapping.model_dump_json()
        writing.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    with writing.update_snapshot(snapshot_properties=dict(said)).fast_append() as adding:
        for file in files:
            adding.append_data_file(file)


def can_widen(before: pa.DataType, after: pa.DataType) -> bool:
    """Whether Iceberg can widen a column so. Source: the Iceberg table specification, "Schema Evolution"."""
    if pa.types.is_decimal128(before) and pa.types.is_decimal128(after):
        return bool(before.scale == after.scale)
    return (before, after) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def stored(schema: pa.Schema) -> pa.Schema:
    """The columns of an Iceberg table, which has no integers of less than 32 bits."""
    return pa.schema([pa.field(field.name, _stored(field.type)) for field in optional(schema)])


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _stored(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _stored(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    return pa.int32() if kind in (pa.int8(), pa.int16()) else kind


def arrow_schema(table: IcebergTable) -> pa.Schema:
    """The columns without Iceberg's field ids, and with the types of written files."""
    return optional(table.schema().as_arrow())

"""What Duramen uses of google-re2, which carries no types."""

class error(Exception): ...

class Options:
    log_errors: bool
    max_mem: int

class _Match: ...

class _Regexp:
    def fullmatch(self, text: str) -> _Match | None: ...

def compile(pattern: str, options: Options | None = None) -> _Regexp: ...

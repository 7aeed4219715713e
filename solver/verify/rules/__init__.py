"""The rules of the judge, one family per file: each public function that takes a case and yields findings is one."""

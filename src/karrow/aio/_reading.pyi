from typing import final

@final
class Attention:
    wanted: bool

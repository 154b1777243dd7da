"""How do the tools that watch cards print, format by format? One module reads one format."""

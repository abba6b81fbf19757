"""JupyterLab as a person sees it, in a real Chromium."""

"""Pictures of runs: xarray in, Bokeh or HoloViews out; one file per family of pictures."""

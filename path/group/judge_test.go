package group

import (
	"slices"
	"testing"

	"heddle/path"
)

func TestUsable(t *testing.T) {
	const up, unproven, suspect, silent, down = path.Up, path.Unproven, path.Suspect, path.Silent, path.Down
	for name, c := range map[string]struct {
		states   []path.State
		need     int
		trusting bool
		want     []bool
	}{
		"those that are up":                          {[]path.State{up, silent, up, down}, 2, true, []bool{true, false, true, false}},
		"unproven counts where nothing can be asked": {[]path.State{up, unproven}, 2, true, []bool{true, true}},
		"and not where the server can be asked":      {[]path.State{up, unproven}, 2, false, []bool{true, false}},
		"no doubtful one where enough are up":        {[]path.State{up, suspect, up}, 2, true, []bool{true, false, true}},
		"doubtful ones up to what is needed":         {[]path.State{up, suspect, suspect}, 2, true, []bool{true, true, false}},
		"also where the server can be asked":         {[]path.State{up, suspect, silent}, 2, false, []bool{true, true, false}},
		"all alike where the server is not heard":    {[]path.State{suspect, suspect, suspect}, 1, true, []bool{true, true, true}},
		"but not beside one that was never tried":    {[]path.State{unproven, suspect, suspect}, 1, true, []bool{true, false, false}},
		"nor where the server can be asked":          {[]path.State{suspect, suspect, suspect}, 1, false, []bool{true, false, false}},
		"never a silent one":                         {[]path.State{silent, down}, 1, true, []bool{false, false}},
	} {
		if got := Usable(c.states, c.need, c.trusting); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

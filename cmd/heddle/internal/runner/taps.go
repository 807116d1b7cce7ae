package runner

import (
	"errors"

	"heddle/observe"
	"heddle/path"
)

// taps are the captures of a running command, one a path; the zero value captures nothing.
type taps struct{ files map[string]*observe.FileTap }

// OpenTaps starts DIR/NAME.pcapng for each path; dir may be empty for none.
func OpenTaps(dir string, via []path.Spec) (*taps, error) {
	t := &taps{files: map[string]*observe.FileTap{}}
	if dir == "" {
		return t, nil
	}
	for _, spec := range via {
		f, err := observe.NewFileTap(dir, spec.Name, spec.String())
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.files[spec.Name] = f
	}
	return t, nil
}

// Tap gives the tap of a path, nil where nothing is captured.
func (t *taps) Tap(name string) observe.Tap {
	if f, ok := t.files[name]; ok {
		return f
	}
	return nil
}

// Close ends the captures.
func (t *taps) Close() error {
	var errs []error
	for _, f := range t.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

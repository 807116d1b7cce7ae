package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"heddle/board"
	"heddle/board/space"
	"heddle/internal/atomicfile"
	"heddle/path"
)

// Reader is the part of [board.Client] that reading needs.
type Reader interface {
	List(ctx context.Context, template space.Template) ([]space.Entry, error)
}

// Cache stores the last list in a file. Its content is signed, and is verified again when it is read.
type Cache struct {
	File   string
	Space  space.ID         // the board's name; a list of another board is ignored
	MaxAge time.Duration    // of a list that may still be used; 0 is a day
	Clock  func() time.Time // nil: the machine's
}

// DefaultMaxAge is the default of [Cache.MaxAge].
const DefaultMaxAge = 24 * time.Hour

// saved is the content of the file.
type saved struct {
	Space   space.ID  `json:"space"`
	Read    time.Time `json:"read"`
	Results [][]byte  `json:"results"` // encoded [space.Result]s
}

// Load asks the board and stores its answer. If the board cannot be reached, Load returns a stored list up to MaxAge old,
// with the reason in [Directory.Cached]. A refusal is an error.
func (c Cache) Load(ctx context.Context, r Reader) (Directory, error) {
	now := time.Now
	if c.Clock != nil {
		now = c.Clock
	}
	entries, err := list(ctx, r)
	if err == nil {
		d := Parse(entries)
		d.Read = now().UTC()
		return d, c.save(entries, d.Read)
	}
	if board.Permanent(err) {
		return Directory{}, err
	}
	if _, refused := errors.AsType[*board.Refusal](err); refused {
		return Directory{}, err
	}
	return c.old(now(), err)
}

func list(ctx context.Context, r Reader) ([]space.Entry, error) {
	var all []space.Entry
	for _, registration := range []Registration{Node{}, Stream{}} {
		template := named(registration)
		template[1] = space.AnyOf(space.TypeString)
		entries, err := r.List(ctx, template)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
	}
	return all, nil
}

func (c Cache) save(entries []space.Entry, read time.Time) error {
	s := saved{Space: c.Space, Read: read}
	for len(entries) > 0 {
		n := min(len(entries), space.MaxEntries)
		s.Results = append(s.Results, space.Result{Status: space.OK, Entries: entries[:n]}.Encode())
		entries = entries[n:]
	}
	raw, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.WritePrivate(c.File, raw)
	}
	if err != nil {
		return &path.Error{What: "the list of registrations " + c.File, Why: "cannot be kept", Err: err}
	}
	return nil
}

// old returns the stored list; why is the board's error.
func (c Cache) old(now time.Time, why error) (Directory, error) {
	s, entries, err := c.read()
	if errors.Is(err, fs.ErrNotExist) {
		return Directory{}, why
	}
	if err != nil {
		return Directory{}, errors.Join(why, &path.Error{What: "the list of registrations " + c.File, Why: "cannot be used", Err: err, Hint: "remove the file"})
	}
	limit := cmp.Or(c.MaxAge, DefaultMaxAge)
	if age := now.Sub(s.Read); age > limit || age < -space.MaxSlack {
		return Directory{}, errors.Join(why, &path.Error{What: "the list of registrations " + c.File,
			Why: fmt.Sprintf("is too old: it was read %v ago, and the limit is %v", age.Round(time.Second), limit), Hint: "--max-age allows an older one"})
	}
	d := Parse(entries)
	d.Read, d.Cached = s.Read, why.Error()
	return d, nil
}

func (c Cache) read() (s saved, entries []space.Entry, err error) {
	raw, err := os.ReadFile(filepath.Clean(c.File))
	if err != nil {
		return s, nil, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, nil, err
	}
	if s.Space != c.Space {
		return s, nil, errors.New("it is of another board")
	}
	for _, raw := range s.Results {
		result, err := space.DecodeResult(raw)
		if err != nil {
			return s, nil, err
		}
		for _, e := range result.Entries {
			if err := e.Verify(c.Space, space.MaxSlack); err != nil {
				return s, nil, err
			}
		}
		entries = append(entries, result.Entries...)
	}
	return s, entries, nil
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"heddle/internal/text"
	"heddle/lab"
	"heddle/lab/peer"
	"heddle/observe"
	"heddle/path"
)

// Options control the demo.
type Options struct {
	// Dir receives the page and the captures. It replaces captures of an earlier demo, and nothing else.
	Dir      string
	Heddle   string    // path of the binary to show
	Large    int64     // size of the large file in bytes
	Loopback bool      // run over loopback addresses, without a world
	Talk     io.Writer // takes progress lines
}

// Result is what a demo showed. Its JSON fields are a stable interface.
type Result struct {
	World    string         `json:"world"`    // "threeways" or "loopback"
	Page     string         `json:"page"`     // the HTML page
	Captures string         `json:"captures"` // directory of the captures
	Fetched  []Fetch        `json:"fetched"`
	Lateness *lab.Lateness  `json:"lateness,omitempty"` // of the emulated links
	Notes    []string       `json:"notes"`              // for readers of the figures
	Report   observe.Report `json:"report"`
}

// Fetch counts what curl fetched in one phase, complete and unchanged.
type Fetch struct {
	Phase   string  `json:"phase"`
	Files   int     `json:"files"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// stage is where sessions run and are captured.
type stage struct {
	o                       Options
	work, file, certificate string // file is the client's wg-quick file, certificate the web server's
	targets                 []target
	phases                  []phase // in their order
	finish                  func(*Result)
	close                   func() error
}

// phase is one way to run the session; the one at place 0 is shown first. hold starts it with captures to dir, calls
// fetch with a function that runs curl there, and ends it.
type phase struct {
	place      int
	label, dir string
	hold       func(ctx context.Context, dir string, fetch func(curl) error) error
}

// Run runs all phases, and leaves only the files in o.Dir.
func Run(ctx context.Context, o Options) (result Result, err error) {
	captures, err := prepare(o.Dir)
	if err != nil {
		return result, err
	}
	work, err := os.MkdirTemp("", "heddle-demo-")
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	result = Result{World: "threeways", Captures: captures, Page: filepath.Join(o.Dir, "report.html"), Notes: []string{}}
	if o.Loopback {
		result.World = "loopback"
	}
	s := &stage{o: o, work: work, file: filepath.Join(work, "work.conf"), close: func() error { return nil }}
	defer func() { err = errors.Join(err, s.close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the servers, before the stage is closed
	if err := s.open(ctx); err != nil {
		return result, err
	}
	sessions := make([]*observe.Session, len(s.phases))
	result.Fetched = make([]Fetch, len(s.phases))
	for _, p := range s.phases {
		if sessions[p.place], result.Fetched[p.place], err = s.show(ctx, p, captures); err != nil {
			return result, fmt.Errorf("%s: %w", p.label, err)
		}
	}
	s.finish(&result)
	sessions[0].Notes = result.Notes
	result.Report = observe.Compare(sessions[0], sessions[1:]...)
	return result, writePage(result.Page, sessions)
}

// open makes the web server's pages and the stage.
func (s *stage) open(ctx context.Context) error {
	if _, err := exec.LookPath("curl"); err != nil {
		return &path.Error{What: "curl", Hint: "apt-get install curl", Err: err}
	}
	root := filepath.Join(s.work, "site")
	pages, err := peer.Site(root, s.o.Large)
	if err != nil {
		return err
	}
	s.targets = targets(root, pages)
	if s.o.Loopback {
		return s.openLoopback(ctx, root)
	}
	return s.openWorld(ctx, root)
}

// show runs one phase and reads its captures.
func (s *stage) show(ctx context.Context, p phase, captures string) (*observe.Session, Fetch, error) {
	fmt.Fprintf(s.o.Talk, "%s: bring it up\n", p.label)
	dir := filepath.Join(captures, p.dir)
	fetched := Fetch{Phase: p.label}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fetched, err
	}
	err := p.hold(ctx, dir, func(c curl) error {
		began := time.Now()
		for _, t := range s.targets {
			n, err := c.fetch(ctx, t, filepath.Join(s.work, "fetched"))
			if err != nil {
				return err
			}
			fetched.Files, fetched.Bytes = fetched.Files+1, fetched.Bytes+n
		}
		fetched.Seconds = time.Since(began).Seconds()
		fmt.Fprintf(s.o.Talk, "%s: curl fetched %d files, %s, in %.1f s\n", p.label, fetched.Files, text.Size(fetched.Bytes), fetched.Seconds)
		return nil
	})
	if err != nil {
		return nil, fetched, err
	}
	session, err := observe.Load(p.label, dir, observe.Options{})
	return session, fetched, err
}

const marker = ".heddle-demo"

// prepare returns a new directory for captures, replacing an earlier demo's.
func prepare(dir string) (string, error) {
	what := "demo in " + dir
	captures := filepath.Join(dir, "captures")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", &path.Error{What: what, Err: err, Hint: "name another directory with --out"}
	}
	_, err := os.Stat(captures)
	if err == nil {
		if _, err := os.Stat(filepath.Join(captures, marker)); err != nil {
			return "", &path.Error{What: what, Why: captures + " is there and no demo made it", Hint: "name another directory with --out"}
		}
		if err := os.RemoveAll(captures); err != nil {
			return "", &path.Error{What: what, Err: err}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", &path.Error{What: what, Err: err}
	}
	if err := os.Mkdir(captures, 0o700); err != nil {
		return "", &path.Error{What: what, Err: err}
	}
	return captures, os.WriteFile(filepath.Join(captures, marker), nil, 0o600)
}

func writePage(name string, sessions []*observe.Session) error {
	f, err := os.Create(name)
	if err != nil {
		return &path.Error{What: "page " + name, Err: err}
	}
	return errors.Join(observe.WriteHTML(f, sessions[0], sessions[1:]...), f.Close())
}

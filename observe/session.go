package observe

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"heddle/path"
)

// Session is one session of a client, as all its observers together saw it.
type Session struct {
	Label     string
	Observers []Observer // sorted by name
	Notes     []string   // how it was captured, for the report's limits
}

// Observer is one place in the network, and its captures.
type Observer struct {
	Name     string
	Files    []string // base names
	captures []CaptureSummary
	Capture
}

var captureSuffixes = []string{".pcapng", ".pcap", ".cap"}

// Place is the captures of one observer.
type Place struct {
	Name  string
	Files []string
}

// Places lists the observers in a directory of captures, sorted by name. Each capture file is an observer, named
// without its suffix, and so is each subdirectory with all its captures. dir may also be a single capture file. It is
// an error if there is no capture.
func Places(dir string) ([]Place, error) {
	what := "captures in " + dir
	info, err := os.Stat(dir)
	if err != nil {
		return nil, &path.Error{What: what, Err: bare(err), Hint: "name a directory that holds .pcapng or .pcap files"}
	}
	if !info.IsDir() {
		return []Place{{observerName(dir), []string{dir}}}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &path.Error{What: what, Err: bare(err)}
	}
	var places []Place
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			files, err := capturesIn(at)
			if err != nil {
				return nil, &path.Error{What: what, Err: err}
			}
			if len(files) > 0 {
				places = append(places, Place{e.Name(), files})
			}
		case isCapture(e.Name()):
			places = append(places, Place{observerName(at), []string{at}})
		}
	}
	if len(places) == 0 {
		return nil, &path.Error{What: what, Why: "there are none",
			Hint: "a capture's name ends in " + strings.Join(captureSuffixes, ", ") + "; `heddle up --capture DIR` writes them"}
	}
	return places, nil
}

// Load reads the captures of all [Places] in dir. A file with a capture's name that is not a capture is an error;
// truncated captures are read as far as possible.
func Load(label, dir string, options Options) (*Session, error) {
	places, err := Places(dir)
	if err != nil {
		return nil, err
	}
	return LoadPlaces(label, places, options)
}

// LoadPlaces reads the captures of places, which must be sorted by name, as [Load] does.
func LoadPlaces(label string, places []Place, options Options) (*Session, error) {
	s := &Session{Label: label}
	for _, p := range places {
		if err := s.add(p.Name, p.Files, options); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// bare removes the file's name from an error whose message already has it.
func bare(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func isCapture(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains(captureSuffixes, strings.ToLower(filepath.Ext(name)))
}

func observerName(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

func capturesIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var files []string
	for _, e := range entries {
		if !e.IsDir() && isCapture(e.Name()) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

func (s *Session) add(name string, files []string, options Options) error {
	o := Observer{Name: name}
	for _, file := range files {
		c, err := readFile(file, options)
		if err != nil {
			return err
		}
		o.captures = append(o.captures, c.summary(s.Label, name, file))
		o.join(filepath.Base(file), c)
	}
	s.Observers = append(s.Observers, o)
	return nil
}

func readFile(name string, options Options) (*Capture, error) {
	what := "capture " + name
	f, err := os.Open(name)
	if err != nil {
		return nil, &path.Error{What: what, Err: bare(err)}
	}
	defer f.Close()
	c, err := Read(f, options)
	switch _, explained := errors.AsType[*path.Error](err); {
	case err == nil:
		return c, nil
	case explained:
		return nil, err
	case errors.Is(err, ErrLinkType):
		return nil, &path.Error{What: what, Err: err,
			Hint: "Heddle knows Ethernet, Linux cooked, raw IP and loopback; capture on the network interface itself"}
	}
	return nil, &path.Error{What: what, Err: err,
		Hint: "Heddle reads pcap and pcapng files that are not compressed; move other files elsewhere"}
}

// join adds another file of the same observer.
func (o *Observer) join(file string, c *Capture) {
	o.Files = append(o.Files, file)
	base := len(o.Flows)
	for i := range c.Packets {
		c.Packets[i].Flow += base
	}
	o.Flows = append(o.Flows, c.Flows...)
	o.Packets = append(o.Packets, c.Packets...)
	if base > 0 {
		slices.SortStableFunc(o.Packets, func(a, b Packet) int { return a.Time.Compare(b.Time) })
	}
	for _, a := range c.Clients {
		if !slices.Contains(o.Clients, a) {
			o.Clients = append(o.Clients, a)
		}
	}
	o.How = cmp.Or(o.How, c.How)
	o.contents = o.contents || c.contents
	if c.Stopped != "" {
		o.Stopped = strings.TrimPrefix(o.Stopped+"; "+file+": "+c.Stopped, "; ")
	}
	o.Missed, o.NotIP, o.Foreign = o.Missed+c.Missed, o.NotIP+c.NotIP, o.Foreign+c.Foreign
}

// event is one packet in the merged order of a session.
type event struct {
	Packet
	observer int
}

// merged returns all packets of the session by time, then by observer.
func (s *Session) merged() []event {
	var total int
	for _, o := range s.Observers {
		total += len(o.Packets)
	}
	all := make([]event, 0, total)
	for i, o := range s.Observers {
		for _, p := range o.Packets {
			all = append(all, event{p, i})
		}
	}
	slices.SortStableFunc(all, func(a, b event) int { return a.Time.Compare(b.Time) })
	return all
}

// Start is the time of the session's first packet.
func (s *Session) Start() time.Time {
	var start time.Time
	for _, o := range s.Observers {
		if len(o.Packets) > 0 && (start.IsZero() || o.Packets[0].Time.Before(start)) {
			start = o.Packets[0].Time
		}
	}
	return start
}

// Duration is the time from the session's first packet to its last.
func (s *Session) Duration() time.Duration {
	var d time.Duration
	start := s.Start()
	for _, o := range s.Observers {
		if n := len(o.Packets); n > 0 {
			d = max(d, o.Packets[n-1].Time.Sub(start))
		}
	}
	return d
}

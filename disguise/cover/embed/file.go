package embed

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"heddle/disguise/cover"
	"heddle/internal/atomicfile"
	"heddle/path"
)

// Database is a set of traces. Both ends of a link need the same one.
type Database struct {
	Fingerprint [8]byte // the first bytes of the SHA-256 of the file
	About       string  // where the traces are from
	Traces      []Trace
}

const (
	version     = 1
	maxFile     = 4 << 20 // bytes, compressed
	maxContents = 8 << 20 // bytes of JSON
	maxAbout    = 2000    // bytes
)

// file is the JSON in a database, which is compressed with gzip. Times and sizes have arrays of their own, which compresses well.
type file struct {
	Version int         `json:"heddle_traces"`
	About   string      `json:"about,omitempty"`
	Traces  []fileTrace `json:"traces"`
}

type fileTrace struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol,omitempty"`
	Datagram bool   `json:"datagrams,omitempty"`
	Port     uint16 `json:"port,omitempty"`
	Loop     bool   `json:"loop,omitempty"`
	Whole    bool   `json:"whole,omitempty"`
	Up       Header `json:"up,omitempty"`
	Down     Header `json:"down,omitempty"`
	// Gaps are the microseconds since the packet before, and Sizes the bytes: positive from client to server.
	Gaps  []int64 `json:"gaps"`
	Sizes []int32 `json:"sizes"`
}

// Load reads a database from a file.
func Load(name string) (*Database, error) {
	what := "trace database " + name
	f, err := os.Open(name)
	if err != nil {
		return nil, &path.Error{What: what, Err: err, Hint: "heddle disguise record makes one"}
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &path.Error{What: what, Err: err}
	}
	d, err := Parse(raw)
	if err != nil {
		return nil, &path.Error{What: what, Err: err, Hint: "heddle disguise record makes one"}
	}
	return d, nil
}

var errTooLarge = fmt.Errorf("it is larger than %d MiB, or than %d MiB unpacked", maxFile>>20, maxContents>>20)

// Parse reads a database. The bytes may be hostile.
func Parse(raw []byte) (*Database, error) {
	if len(raw) > maxFile {
		return nil, errTooLarge
	}
	unpack, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("it is no trace database")
	}
	text, err := io.ReadAll(io.LimitReader(unpack, maxContents+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is cut short or damaged: %w", err)
	case len(text) > maxContents:
		return nil, errTooLarge
	}
	var head struct {
		Version int `json:"heddle_traces"`
	}
	if err := json.Unmarshal(text, &head); err != nil || head.Version == 0 {
		return nil, errors.New("it is no trace database")
	}
	if head.Version != version {
		return nil, fmt.Errorf("it is of version %d, this program reads version %d", head.Version, version)
	}
	var f file
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&f); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	sum := sha256.Sum256(raw)
	d := &Database{Fingerprint: [8]byte(sum[:8]), About: f.About}
	for i := range f.Traces {
		t, err := f.Traces[i].trace()
		if err != nil {
			return nil, fmt.Errorf("trace %d: %w", i, err)
		}
		d.Traces = append(d.Traces, t)
	}
	return d, d.check()
}

func (f *fileTrace) trace() (t Trace, err error) {
	t = Trace{Name: f.Name, Protocol: f.Protocol, Datagrams: f.Datagram, Port: f.Port, Loop: f.Loop, Whole: f.Whole, Up: f.Up, Down: f.Down}
	if len(f.Gaps) != len(f.Sizes) || len(f.Gaps) > MaxPackets {
		return t, fmt.Errorf("%d times and %d sizes, at most %d", len(f.Gaps), len(f.Sizes), MaxPackets)
	}
	t.Packets = make([]Packet, len(f.Gaps))
	var at time.Duration
	for i, gap := range f.Gaps {
		if gap < 0 || gap > MaxDuration.Microseconds() {
			return t, fmt.Errorf("packet %d comes %d us after the one before", i, gap)
		}
		if at += time.Duration(gap) * time.Microsecond; at > MaxDuration {
			return t, fmt.Errorf("it takes longer than %v", MaxDuration)
		}
		size := int(f.Sizes[i])
		t.Packets[i] = Packet{At: at, Size: max(size, -size), Down: size < 0}
	}
	return t, nil
}

func (d *Database) check() error {
	if len(d.About) > maxAbout {
		return fmt.Errorf("its text has %d bytes, more than %d", len(d.About), maxAbout)
	}
	if len(d.Traces) == 0 || len(d.Traces) > MaxTraces {
		return fmt.Errorf("it has %d traces, not 1 to %d", len(d.Traces), MaxTraces)
	}
	names := map[string]bool{}
	for i := range d.Traces {
		t := &d.Traces[i]
		if err := t.Check(); err != nil {
			return fmt.Errorf("trace %d: %w", i, err)
		}
		if names[t.Name] {
			return fmt.Errorf("two traces are called %q", t.Name)
		}
		names[t.Name] = true
	}
	for _, datagrams := range []bool{false, true} {
		if n := len(d.leads(datagrams)); n > cover.MaxLeads {
			return fmt.Errorf("the clients' headers have %d different lengths, more than %d", n, cover.MaxLeads)
		}
	}
	return nil
}

// Write packs the database and writes it to a file.
func (d *Database) Write(name string) error {
	raw, err := d.pack()
	if err == nil {
		err = atomicfile.Write(name, raw, 0o644)
	}
	if err != nil {
		return &path.Error{What: "trace database " + name, Err: err}
	}
	return nil
}

// pack returns the file, and sets the fingerprint.
func (d *Database) pack() ([]byte, error) {
	f := file{Version: version, About: d.About}
	for i := range d.Traces {
		t := &d.Traces[i]
		out := fileTrace{Name: t.Name, Protocol: t.Protocol, Datagram: t.Datagrams, Port: t.Port, Loop: t.Loop, Whole: t.Whole, Up: t.Up, Down: t.Down}
		var before time.Duration
		for _, p := range t.Packets {
			size := int32(p.Size)
			if p.Down {
				size = -size
			}
			out.Gaps = append(out.Gaps, (p.At - before).Microseconds())
			out.Sizes = append(out.Sizes, size)
			before = p.At.Truncate(time.Microsecond)
		}
		f.Traces = append(f.Traces, out)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxContents || packed.Len() > maxFile {
		return nil, errTooLarge
	}
	sum := sha256.Sum256(packed.Bytes())
	d.Fingerprint = [8]byte(sum[:8])
	return packed.Bytes(), nil
}

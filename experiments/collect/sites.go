package collect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"heddle/path"
)

// Protocols of a site.
const (
	HTTP3 = "h3"
	HTTP2 = "h2"
)

// Sites are the pages to visit.
type Sites struct {
	Root string `json:"root"` // directory that all sites serve
	Site []Site `json:"site"`
}

// Site is one page, on a server with its own name.
type Site struct {
	Name      string   `json:"name"`      // letters, digits and '-'; the server is NAME.example
	Page      string   `json:"page"`      // file below the root, and path of the URL
	Protocol  string   `json:"protocol"`  // [HTTP3] or [HTTP2]; the server offers nothing else
	Latency   Duration `json:"latency"`   // one way, between the tunnel's exit and the server
	Monitored bool     `json:"monitored"` // an observer tries to recognise it
}

// Duration is a time.Duration written like "20ms".
type Duration struct{ time.Duration }

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// Limits of a world.
const (
	maxLatencies = 16
	maxLatency   = time.Second
)

// Write writes the sites in the format of [ReadSites], one a line.
func (s Sites) Write(w io.Writer) error {
	root, err := json.Marshal(s.Root)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "{\"root\": %s, \"site\": [", root)
	for i, site := range s.Site {
		line, err := json.Marshal(site)
		if err != nil {
			return err
		}
		text = fmt.Appendf(text, "%s\n  %s", []string{"", ","}[min(i, 1)], line)
	}
	_, err = w.Write(append(text, "\n]}\n"...))
	return err
}

// ReadSites reads a file of sites and checks that each page exists.
func ReadSites(file string) (Sites, error) {
	var s Sites
	text, err := os.ReadFile(file)
	if err != nil {
		return s, &path.Error{What: "sites", Err: err, Hint: "heddle lab sites makes such a file"}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, &path.Error{What: "sites " + file, Why: err.Error(), Hint: "heddle lab sites makes such a file"}
	}
	if err := s.check(); err != nil {
		return s, &path.Error{What: "sites " + file, Why: err.Error()}
	}
	return s, nil
}

func (s Sites) check() error {
	if len(s.Site) == 0 {
		return errors.New("there are none")
	}
	if !filepath.IsAbs(s.Root) {
		return fmt.Errorf("root %q is no absolute path", s.Root)
	}
	names, latencies := map[string]bool{}, map[time.Duration]bool{}
	for _, site := range s.Site {
		if err := site.check(s.Root); err != nil {
			return fmt.Errorf("site %q: %w", site.Name, err)
		}
		if names[site.Name] {
			return fmt.Errorf("two sites are called %q", site.Name)
		}
		names[site.Name], latencies[site.Latency.Duration] = true, true
	}
	if len(latencies) > maxLatencies {
		return fmt.Errorf("%d different latencies, of %d that there may be", len(latencies), maxLatencies)
	}
	return nil
}

func (s Site) check(root string) error {
	if strings.Trim(s.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || s.Name == "" || len(s.Name) > 60 || strings.Trim(s.Name, "-") != s.Name {
		return errors.New("a name is 1 to 60 lower-case letters, digits and '-' between them")
	}
	if s.Protocol != HTTP3 && s.Protocol != HTTP2 {
		return fmt.Errorf("protocol %q is neither %s nor %s", s.Protocol, HTTP3, HTTP2)
	}
	if s.Latency.Duration <= 0 || s.Latency.Duration > maxLatency {
		return fmt.Errorf("latency %v is not in 1ns to %v", s.Latency, maxLatency)
	}
	if !fs.ValidPath(s.Page) {
		return fmt.Errorf("page %q is no path below the root", s.Page)
	}
	info, err := os.Stat(filepath.Join(root, s.Page))
	if err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("there is no page %s below %s: install the package that has it", s.Page, root)
	}
	return nil
}

// Server is the name of the site's server.
func (s Site) Server() string { return s.Name + ".example" }

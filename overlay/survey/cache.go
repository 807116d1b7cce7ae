package survey

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"heddle/identity"
	"heddle/internal/atomicfile"
	"heddle/internal/filelock"
	"heddle/path"
)

// Cache is a file of halves, each with its age.
type Cache struct {
	Halves map[string]Half
	file   string
}

// Keep is how long a cache keeps a half.
const Keep = 30 * 24 * time.Hour

// maxCached bounds a cache, in halves.
const maxCached = 20_000

// OpenCache reads this user's cache, survey.json in Heddle's directory of settings, if it exists.
func OpenCache() (*Cache, error) {
	file, err := identity.DefaultFile()
	if err != nil {
		return nil, err
	}
	c := &Cache{file: filepath.Join(filepath.Dir(file), "survey.json")}
	return c, c.load()
}

// NearKey returns a cache key for a half from here. It holds for the current uplink.
func NearKey(r Request) string {
	return fmt.Sprintf("near %s %s %s %s", r.Uplink.Device, r.Uplink.Source, r.Uplink.Gateway, r.To)
}

// FarKey returns a cache key for a half from a node (by its key) to a destination.
func FarKey(node, to string) string { return "far " + node + " " + to }

type cached struct {
	Halves map[string]Half `json:"halves"`
}

func (c *Cache) load() error {
	var all cached
	text, err := os.ReadFile(c.file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &path.Error{What: "surveys in " + c.file, Why: "cannot be read", Err: err, Hint: "remove the file, and survey again"}
	}
	c.Halves = map[string]Half{}
	for key, h := range all.Halves {
		if h.check() == nil {
			c.Halves[key] = h
		}
	}
	return nil
}

// Add merges halves into the file, which another program may have changed.
func (c *Cache) Add(halves map[string]Half, now time.Time) error {
	fail := func(err error) error {
		return &path.Error{What: "surveys in " + c.file, Why: "cannot be kept", Err: err}
	}
	if err := os.MkdirAll(filepath.Dir(c.file), 0o700); err != nil {
		return fail(err)
	}
	lock, err := filelock.Lock(c.file + ".lock")
	if err != nil {
		return fail(err)
	}
	defer lock.Close()
	if err := c.load(); err != nil {
		return err
	}
	maps.Copy(c.Halves, halves)
	maps.DeleteFunc(c.Halves, func(_ string, h Half) bool { return h.Age(now) > Keep })
	if len(c.Halves) > maxCached {
		return fail(fmt.Errorf("there are %d, and %d are the most", len(c.Halves), maxCached))
	}
	text, err := json.MarshalIndent(cached{c.Halves}, "", " ")
	if err == nil {
		err = atomicfile.Write(c.file, text, 0o600)
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

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

// Cache keeps halves in a file, each with its age. What is older than [Keep] is forgotten.
type Cache struct{ file string }

// Keep is how long a cache keeps a half.
const Keep = 30 * 24 * time.Hour

// maxCached bounds a cache, in halves.
const maxCached = 20_000

// NewCache is the cache in a file, which need not exist.
func NewCache(file string) Cache { return Cache{file} }

// DefaultCache is this user's: survey.json in Heddle's directory of settings.
func DefaultCache() (Cache, error) {
	file, err := identity.DefaultFile()
	return Cache{filepath.Join(filepath.Dir(file), "survey.json")}, err
}

// NearKey and FarKey name the halves of a way in a cache. A half from here holds for the uplink as it is now, one from a
// node for the node of that key.
func NearKey(r Request) string {
	return fmt.Sprintf("near %s %s %s %s", r.Uplink.Device, r.Uplink.Source, r.Uplink.Gateway, r.To)
}

// FarKey is for what a node measured to a destination.
func FarKey(node, to string) string { return "far " + node + " " + to }

type cached struct {
	Halves map[string]Half `json:"halves"`
}

// Load reads all halves that are kept.
func (c Cache) Load() (map[string]Half, error) {
	var all cached
	text, err := os.ReadFile(c.file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for key, h := range all.Halves {
		if h.check() != nil {
			delete(all.Halves, key)
		}
	}
	if err != nil {
		return nil, &path.Error{What: "surveys in " + c.file, Why: "cannot be read", Err: err, Hint: "remove the file, and survey again"}
	}
	if all.Halves == nil {
		all.Halves = map[string]Half{}
	}
	return all.Halves, nil
}

// Add keeps halves beside those that are kept, also where another program does the same.
func (c Cache) Add(halves map[string]Half, now time.Time) error {
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
	all, err := c.Load()
	if err != nil {
		return err
	}
	maps.Copy(all, halves)
	maps.DeleteFunc(all, func(_ string, h Half) bool { return h.Age(now) > Keep })
	if len(all) > maxCached {
		return fail(fmt.Errorf("there are %d, and %d are the most", len(all), maxCached))
	}
	text, err := json.MarshalIndent(cached{all}, "", " ")
	if err != nil {
		return fail(err)
	}
	if err := atomicfile.Write(c.file, text, 0o600); err != nil {
		return fail(err)
	}
	return nil
}

package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"heddle/path"
)

// maxFile bounds a heddle.toml in bytes.
const maxFile = 1 << 20

// Load reads a heddle.toml. It fails with all [Problems] if any is an error, not for warnings only. It makes file names
// in it absolute or relative to the working directory, and expands paths given by name.
func Load(file string) (Config, error) {
	c, problems := Check(file)
	if wrong := problems.Errors(); len(wrong) > 0 {
		return Config{}, wrong
	}
	return c, nil
}

// Check reads a heddle.toml and returns all errors and warnings, by line.
func Check(file string) (Config, Problems) { return check(file, false) }

// CheckHere is [Check], and also warns of each path that cannot send from this machine now.
func CheckHere(file string) (Config, Problems) { return check(file, true) }

func check(file string, here bool) (Config, Problems) {
	data, err := read(file)
	if err != nil {
		return Config{}, Problems{{File: file, Severity: SeverityError, What: reason(err),
			Hint: "dist/heddle.toml is a commented example to start from"}}
	}
	c := Default()
	doc := decode(file, data, &c)
	if len(doc.problems) > 0 && len(doc.places) == 0 {
		return c, doc.problems // not TOML: nothing more can be checked
	}
	resolve(&c, filepath.Dir(file))
	for i := range c.Dials {
		c.Dials[i].KeptBoard()
	}
	validate(c, doc, here)
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o022 != 0 {
		doc.report(place{}, SeverityWarning, "", fmt.Sprintf("others can write to it (mode %#o)", info.Mode().Perm()),
			"whoever writes to it decides which networks see you: chmod go-w "+file)
	}
	return c, doc.sorted()
}

// Validate returns the problems of a config like [Check], but without lines.
func (c Config) Validate() Problems {
	doc := &document{file: "config"}
	validate(c, doc, false)
	return doc.sorted()
}

// Check returns the first error of a tunnel from flags, named by its flag. It does not read the WireGuard file.
func (u Up) Check() error { return firstError(Config{Paths: u.Paths, Ups: []Up{u}}) }

// Check returns the first error of a relay from flags, named by its flag.
func (s Split) Check() error { return firstError(Config{Paths: s.Paths, Splits: []Split{s}}) }

func firstError(c Config) error {
	for _, p := range c.Validate().Errors() {
		key := p.Key[strings.IndexByte(p.Key, '.')+1:]
		if key, _, _ = strings.Cut(key, "["); key != "file" {
			return &path.Error{What: "--" + key, Why: p.What, Hint: p.Hint}
		}
	}
	return nil
}

func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, cmp.Or(err, errors.New("it is a directory"))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is longer than %d bytes", maxFile)
	}
	return data, err
}

// beside are the paths that a session has outside its schedule: its own, and those before the first table. Only those
// that something uses are opened.
func beside(defined []string, p Paths) []string {
	taken := namesOf(slices.Concat(p.Via, p.Path))
	return append(slices.Clone(p.Path), slices.DeleteFunc(slices.Clone(defined), func(text string) bool {
		return !strings.Contains(text, "=") || slices.Contains(taken, nameOf(text))
	})...)
}

// reason removes the file's name from an error that is printed beside it.
func reason(err error) string {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err.Error()
	}
	return err.Error()
}

// resolve expands the paths that tables give by name, and makes file names relative to the working directory. If
// sessions share a capture directory from before the first table, each gets a subdirectory.
func resolve(c *Config, dir string) {
	top := map[string]string{}
	for _, text := range slices.Concat(c.Via, c.Path) {
		if name, _, found := strings.Cut(text, "="); found {
			top[name] = text
		}
	}
	for _, r := range c.Tables {
		c.Rules = append(c.Rules, r.flag())
	}
	for i := range c.Ups {
		u := &c.Ups[i]
		besideFiles(dir, &u.File)
		besideFiles(dir, &u.SocksUsers)
		u.Paths.resolve(c.Paths, top, u.SessionName(), dir)
	}
	for i := range c.Splits {
		s := &c.Splits[i]
		s.Paths.resolve(c.Paths, top, s.SessionName(), dir)
	}
	for i := range c.Serves {
		c.Serves[i].beside(dir)
	}
	for i := range c.Dials {
		c.Dials[i].resolve(c.Paths, top, dir)
	}
	c.Secret = besideSecrets(dir, c.Secret)
	besideFiles(dir, &c.Identity, &c.Capture)
}

func (p *Paths) resolve(all Paths, top map[string]string, session, dir string) {
	p.Via = written(p.Via, top)
	p.Secret = besideSecrets(dir, p.Secret)
	p.Rules = all.Rules
	p.Path = beside(slices.Concat(all.Via, all.Path), *p)
	if p.Capture != "" && p.Capture == all.Capture {
		p.Capture = filepath.Join(p.Capture, session)
	}
	besideFiles(dir, &p.Identity, &p.Capture)
}

// written replaces the names of paths before the first table by those paths.
func written(via []string, top map[string]string) []string {
	via = slices.Clone(via)
	for i, text := range via {
		via[i] = cmp.Or(top[text], text)
	}
	return via
}

// besideFiles makes file names in dir relative to the working directory.
func besideFiles[S ~string](dir string, names ...*S) {
	for _, name := range names {
		if *name != "" && !filepath.IsAbs(string(*name)) {
			*name = S(filepath.Join(dir, string(*name)))
		}
	}
}

// besideBoard does this for a board's file, unless it is KEY@HOST:PORT by the rules of package board.
func besideBoard(dir string, name *string) {
	if !strings.Contains(*name, "@") {
		besideFiles(dir, name)
	}
}

// besideSecrets does this for the files in a list of NAME=FILE.
func besideSecrets(dir string, list []string) []string {
	list = slices.Clone(list)
	for i, text := range list {
		if name, file, found := strings.Cut(text, "="); found {
			besideFiles(dir, &file)
			list[i] = name + "=" + file
		}
	}
	return list
}

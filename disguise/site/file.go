package site

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"heddle/internal/atomicfile"
	"heddle/path"
)

// A site is a ZIP archive: the index in JSON, and each different body once, under its SHA-256.
const (
	version   = 1
	indexName = "site.json"
	bodyDir   = "bodies/"
	maxFile   = MaxBodies + maxIndex
	maxIndex  = 32 << 20 // bytes of JSON
)

type index struct {
	Version int `json:"heddle_site"`
	*Site
}

const hint = "heddle disguise site import makes one"

// Open reads a site from a file.
func Open(name string) (*Site, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, &path.Error{What: "site " + name, Err: err, Hint: hint}
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &path.Error{What: "site " + name, Err: err}
	}
	s, err := Parse(raw)
	if err != nil {
		return nil, &path.Error{What: "site " + name, Err: err, Hint: hint}
	}
	return s, nil
}

// Parse reads a site. The bytes may be hostile.
func Parse(raw []byte) (*Site, error) {
	if len(raw) > maxFile {
		return nil, fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	archive, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, errors.New("it is no site")
	}
	if len(archive.File) > MaxObjects+1 {
		return nil, fmt.Errorf("it has %d files, more than %d", len(archive.File), MaxObjects+1)
	}
	files := map[string]*zip.File{}
	for _, f := range archive.File {
		files[f.Name] = f
	}
	text, err := unpack(files[indexName], maxIndex)
	if err != nil {
		return nil, fmt.Errorf("it is no site, or damaged: %w", err)
	}
	var head index
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("its index is damaged: %w", err)
	}
	if head.Version != version || head.Site == nil {
		return nil, fmt.Errorf("it is of version %d, this program reads version %d", head.Version, version)
	}
	s := head.Site
	if err := s.check(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	s.Fingerprint = [8]byte(sum[:8])
	bodies := map[string][]byte{}
	for i := range s.Objects {
		o := &s.Objects[i]
		body, found := bodies[o.Sum]
		if !found {
			if body, err = unpack(files[bodyDir+o.Sum], o.Size); err != nil {
				return nil, fmt.Errorf("the body of object %d is damaged: %w", i, err)
			}
			bodies[o.Sum] = body
		}
		if int64(len(body)) != o.Size || sumOf(body) != o.Sum {
			return nil, fmt.Errorf("the body of object %d is another one", i)
		}
		o.Body = body
	}
	return s, nil
}

// unpack returns the content of a file, which is most bytes at the most: what the archive says of its size is a stranger's word.
func unpack(f *zip.File, most int64) ([]byte, error) {
	if f == nil {
		return nil, errors.New("a file is missing")
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("a file has more than %d bytes", most)
	}
	return content, err
}

func sumOf(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// Write packs the site and writes it to a file.
func (s *Site) Write(name string) error {
	raw, err := s.pack()
	if err == nil {
		err = atomicfile.Write(name, raw, 0o644)
	}
	if err != nil {
		return &path.Error{What: "site " + name, Err: err}
	}
	return nil
}

// pack returns the file, and sets the sums and the fingerprint.
func (s *Site) pack() ([]byte, error) {
	for i := range s.Objects {
		o := &s.Objects[i]
		o.Sum, o.Size = sumOf(o.Body), int64(len(o.Body))
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(index{version, s})
	if err != nil {
		return nil, err
	}
	if len(text) > maxIndex {
		return nil, fmt.Errorf("its index has more than %d MiB", maxIndex>>20)
	}
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	err = add(archive, indexName, text)
	done := map[string]bool{}
	for i := range s.Objects {
		if o := &s.Objects[i]; !done[o.Sum] {
			done[o.Sum] = true
			err = errors.Join(err, add(archive, bodyDir+o.Sum, o.Body))
		}
	}
	sum := sha256.Sum256(text)
	s.Fingerprint = [8]byte(sum[:8])
	err = errors.Join(err, archive.Close())
	return packed.Bytes(), err
}

func add(archive *zip.Writer, name string, content []byte) error {
	w, err := archive.Create(name)
	if err == nil {
		_, err = w.Write(content)
	}
	return err
}

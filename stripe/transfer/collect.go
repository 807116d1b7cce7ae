package transfer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"heddle/path"
)

// File is one file to send.
type File struct {
	// Name is the receiver's name for the file, separated by slashes.
	Name string `json:"name"`
	// Path is the local file. It is not sent.
	Path       string    `json:"-"`
	Size       int64     `json:"size"` // bytes, when it was listed
	Modified   time.Time `json:"modified"`
	Executable bool      `json:"executable,omitempty"`
}

// Collect lists the files that command-line names refer to: a file by its base name, a directory's files by its base name
// and their relative paths. It skips links and special files in directories and reports each in skipped. It fails if a name
// cannot be read or sent, or if two files would have the same name.
func Collect(names []string) (files []File, skipped []string, err error) {
	taken := map[string]string{}
	add := func(name, file string, info fs.FileInfo) error {
		what := "send " + file
		if why := CheckName(name, true); why != "" {
			return &path.Error{What: what, Why: why, Hint: "give it another name first"}
		}
		if other, is := taken[name]; is {
			return &path.Error{What: what, Why: fmt.Sprintf("%s would be called %s too", other, name), Hint: "send them one after the other, or their directories"}
		}
		taken[name] = file
		files = append(files, File{Name: name, Path: file, Size: info.Size(), Modified: info.ModTime(), Executable: info.Mode()&0o111 != 0})
		return nil
	}
	for _, given := range names {
		absolute, err := filepath.Abs(given)
		if err != nil {
			return nil, nil, err
		}
		info, err := os.Stat(given)
		if err != nil {
			return nil, nil, unreadable(given, err)
		}
		base := filepath.Base(absolute)
		switch {
		case info.Mode().IsRegular():
			err = add(base, given, info)
		case info.IsDir():
			err = walk(absolute, func(below, file string, info fs.FileInfo) error {
				if !info.Mode().IsRegular() {
					skipped = append(skipped, fmt.Sprintf("%s: it is no file (%s)", file, info.Mode().Type()))
					return nil
				}
				return add(filepath.ToSlash(filepath.Join(base, below)), file, info)
			})
		default:
			err = &path.Error{What: "send " + given, Why: "it is neither a file nor a directory"}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return files, skipped, nil
}

func walk(dir string, visit func(below, file string, info fs.FileInfo) error) error {
	return filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return unreadable(file, err)
		}
		if entry.IsDir() {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) { // it was deleted meanwhile
			return nil
		} else if err != nil {
			return unreadable(file, err)
		}
		below, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		return visit(below, file, info)
	})
}

func unreadable(file string, err error) error {
	return &path.Error{What: "send " + file, Why: "it cannot be read", Err: nameless(err)}
}

package control

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"heddle/path"
)

// Dir is the directory of sockets: $HEDDLE_RUN_DIR; else /run/heddle as root; else $XDG_RUNTIME_DIR/heddle; else a
// directory named by the user id in the temporary directory. [Listen] makes it if needed.
func Dir() string {
	if dir := os.Getenv("HEDDLE_RUN_DIR"); dir != "" {
		return dir
	}
	if os.Geteuid() == 0 {
		return "/run/heddle"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "heddle")
	}
	return filepath.Join(os.TempDir(), "heddle-"+strconv.Itoa(os.Geteuid()))
}

// OwnDir returns [Dir] after it made it if needed, and checked that nobody else can write to it.
func OwnDir() (string, error) {
	dir := Dir()
	return dir, makeDir(dir)
}

// makeDir makes the directory if needed, and checks that nobody else can put sockets into it.
func makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return dirError(dir, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return dirError(dir, err)
	}
	return checkDir(dir)
}

// checkDir rejects a directory that another user owns or can write to. Root may look into any user's own directory.
func checkDir(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return dirError(dir, err)
	}
	if !info.IsDir() {
		return dirError(dir, errors.New("it is not a directory"))
	}
	if err := checkOwner(info); err != nil {
		return dirError(dir, err)
	}
	return nil
}

func dirError(dir string, err error) error {
	return &path.Error{What: "run directory " + dir, Err: err,
		Hint: "set HEDDLE_RUN_DIR to a directory that only you can write to"}
}

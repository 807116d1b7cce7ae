package config

import (
	"fmt"
	"os"
	"strings"

	"heddle/path"
)

const maxSecret = 4096 // bytes; passwords and tokens are far shorter

// readSecret reads the first line of a secret's file, which only its owner may be able to read.
func readSecret(name, file string) (path.Secret, error) {
	what := "secret of path " + name
	info, err := os.Stat(file)
	if err != nil {
		return "", &path.Error{What: what, Why: "its file cannot be read", Hint: "name the file that holds it with --secret " + name + "=FILE", Err: err}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", &path.Error{What: what, Why: fmt.Sprintf("others can read %s (mode %#o)", file, info.Mode().Perm()), Hint: "chmod 600 " + file}
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecret {
		return "", &path.Error{What: what, Why: file + " is no file with a secret in it", Hint: "a text file of one line: USER:PASSWORD, or a token"}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", &path.Error{What: what, Why: "its file cannot be read", Err: err}
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", &path.Error{What: what, Why: file + " is empty", Hint: "a text file of one line: USER:PASSWORD, or a token"}
	}
	return path.Secret(line), nil
}

// checkSecret fails if a secret's file cannot be used. A path reads its secret when it opens, which is too late for a person to
// see why the path does not come up.
func checkSecret(name, file string) error {
	_, err := readSecret(name, file)
	return err
}

// secrets returns a reader of the files in list, each NAME=FILE; nil if it is empty.
func secrets(list []string) func(string) (path.Secret, error) {
	if len(list) == 0 {
		return nil
	}
	files := map[string]string{}
	for _, text := range list {
		name, file, _ := strings.Cut(text, "=")
		files[name] = file
	}
	return func(name string) (path.Secret, error) {
		file, ok := files[name]
		if !ok {
			return "", nil
		}
		return readSecret(name, file)
	}
}

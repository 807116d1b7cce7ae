package wgconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"heddle/path"
)

// MaxDeviceName is the maximum length of a network device's name in Linux, in bytes (IFNAMSIZ - 1).
const MaxDeviceName = 15

// wg-quick(8) allows the same characters, and [MaxDeviceName] of them; tunnels without a device may have more.
var nameRule = regexp.MustCompile(`^[a-zA-Z0-9_=+.-]{1,64}$`)

// Find returns the file for arg: arg itself if it has a '/' or ends in ".conf", else NAME.conf here, else
// /etc/wireguard/NAME.conf, as wg-quick does.
func Find(arg string) (string, error) {
	if strings.Contains(arg, "/") || strings.HasSuffix(arg, ".conf") {
		return arg, nil
	}
	tried := []string{arg + ".conf", filepath.Join("/etc/wireguard", arg+".conf")}
	for _, file := range tried {
		_, err := os.Stat(file)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", &path.Error{What: file, Why: "it cannot be read", Err: err}
		}
	}
	return "", &path.Error{What: arg, Why: "there is no file " + strings.Join(tried, " and no file "),
		Hint: "give the path of the WireGuard file, for example heddle up ./office.conf"}
}

// NameOf returns the name of a file's tunnel: its base name without ".conf".
func NameOf(file string) (string, error) {
	name := strings.TrimSuffix(filepath.Base(file), ".conf")
	if !nameRule.MatchString(name) || name == "." || name == ".." {
		return "", &path.Error{What: file, Why: fmt.Sprintf("%q cannot name a tunnel", name),
			Hint: "name the file with letters, digits and any of _ = + . - , for example office.conf"}
	}
	return name, nil
}

// Load reads a WireGuard file. It refuses one that its group or others can read, since it contains the private key.
func Load(file string) (*Config, error) {
	data, err := readPrivate(file)
	if err != nil {
		return nil, err
	}
	return Parse(filepath.Base(file), data)
}

// readPrivate reads a file that only its owner can read.
func readPrivate(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		hint := "give the path of the WireGuard file"
		if errors.Is(err, fs.ErrPermission) {
			hint = "the file belongs to somebody else: run as its owner"
		}
		return nil, &path.Error{What: file, Why: "it cannot be read", Hint: hint, Err: errors.Unwrap(err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, &path.Error{What: file, Why: "it cannot be read", Err: err}
	}
	if info.IsDir() {
		return nil, &path.Error{What: file, Why: "it is a directory", Hint: "give the WireGuard file in it"}
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return nil, &path.Error{What: file,
			Why:  fmt.Sprintf("others can read the private key in it (mode %04o)", info.Mode().Perm()),
			Hint: "chmod 600 " + file}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, &path.Error{What: file, Why: "it cannot be read", Err: err}
	}
	return data, nil
}

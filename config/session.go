package config

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"

	"heddle/path"
)

// A session's name becomes a file name, so it must not begin with a dot or contain a slash.
var sessionRule = regexp.MustCompile(`^[a-zA-Z0-9_=+][a-zA-Z0-9_=+.-]{0,63}$`)

// CheckSessionName returns an error for an invalid session name.
func CheckSessionName(name string) error {
	if sessionRule.MatchString(name) {
		return nil
	}
	return &path.Error{What: fmt.Sprintf("name %q", name), Why: "it cannot name a session",
		Hint: "a name is 1 to 64 letters, digits or any of _ = + . - and starts with none of the last two"}
}

// SessionName is Name, or the file's name without .conf.
func (u Up) SessionName() string {
	if u.Name != "" || u.File == "" {
		return u.Name
	}
	return strings.TrimSuffix(filepath.Base(u.File), ".conf")
}

// SessionName is Name, or split-PORT with the port it listens on, or else with the server's.
func (s Split) SessionName() string {
	if s.Name != "" {
		return s.Name
	}
	_, port, err := net.SplitHostPort(cmp.Or(s.Listen, s.To))
	if err != nil || port == "" {
		return ""
	}
	return "split-" + port
}

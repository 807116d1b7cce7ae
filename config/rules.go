package config

import (
	"fmt"
	"strings"

	"heddle/split"
)

// Rule is a [[rule]] table: its matches take one path, regardless of the schedule, in each session of the file.
type Rule struct {
	// When is "quic-handshake", "first 10p", "first 3s" or "port 53".
	When string `toml:"when"`
	Use  string `toml:"use"` // name of a path
}

func (r Rule) flag() string { return r.When + "=" + r.Use }

// splitRules returns the session's rules: handshake-via comes first, since it hides the most.
func (p Paths) splitRules() ([]split.Rule, error) {
	var out []split.Rule
	if p.HandshakeVia != "" {
		out = append(out, split.Rule{When: split.When{Handshake: true}, Use: p.HandshakeVia})
	}
	for _, text := range p.Rules {
		r, err := split.ParseRule(text)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// ruleFindings finds rules that can never work. known has the names of the paths.
func (p Paths) ruleFindings(known map[string]bool) (found findings) {
	absent := func(key string, index int, name string) {
		found.say(key, index, fmt.Sprintf("no path is called %q", name), "define it with path = [\""+name+"=KIND:ARG\"], or name one of via")
	}
	if p.HandshakeVia != "" && !known[p.HandshakeVia] {
		absent("handshake-via", -1, p.HandshakeVia)
	}
	for i, text := range p.Rules {
		r, err := split.ParseRule(text)
		switch {
		case err != nil:
			found.add("rule", i, err)
		case !known[r.Use]:
			absent("rule", i, r.Use)
		}
	}
	for i, text := range p.Secret {
		name, file, ok := strings.Cut(text, "=")
		switch {
		case !ok || file == "":
			found.say("secret", i, fmt.Sprintf("%q is not NAME=FILE", text), "such as p=/etc/heddle/p.secret; the secret itself stays in the file")
		case !known[name]:
			absent("secret", i, name)
		default:
			found.add("secret", i, checkSecret(name, file))
		}
	}
	return found
}

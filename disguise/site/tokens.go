package site

import (
	"net/http"
	"slices"
	"strings"

	"heddle/disguise/carrier"
)

// Tokens are parts of targets.
type Tokens map[string]bool

// leastToken is the shortest token of a target that can hide something, in bytes.
const leastToken = 16

// Given returns the tokens of all targets that stand in a body too: the site made them, so a client may not make its own.
func (s *Site) Given() Tokens {
	given := Tokens{}
	for i := range s.Objects {
		for _, token := range tokens(s.Objects[i].URL) {
			given[token] = false
		}
	}
	for i := range s.Objects {
		o := &s.Objects[i]
		if !strings.HasPrefix(o.Type, "text/") && !strings.HasSuffix(o.Type, "json") && !strings.HasSuffix(o.Type, "javascript") {
			continue
		}
		for _, part := range parts(string(o.Body)) {
			if _, sent := given[part]; sent {
				given[part] = true
			}
		}
	}
	return given
}

// In reports whether one of the tokens is in a target.
func (t Tokens) In(target string) bool {
	return slices.ContainsFunc(tokens(target), func(token string) bool { return t[token] })
}

// tokens returns the random tokens of a target. What is long enough for one but does not look random is a name.
func tokens(target string) []string {
	room := carrier.Target.Capacity([]byte(target))
	blank, err := carrier.Target.Embed([]byte(target), make([]byte, room))
	if room == 0 || err != nil {
		return nil
	}
	names := parts(string(blank))
	return slices.DeleteFunc(parts(target), func(part string) bool { return slices.Contains(names, part) })
}

// parts are the parts of a text that may be tokens.
func parts(text string) (all []string) {
	return slices.DeleteFunc(strings.FieldsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-' && r != '_'
	}), func(part string) bool { return len(part) < leastToken })
}

// merge makes one object of those whose targets differ only in random tokens that the browser made: a script asked for the same thing at
// several visits. So the recording shows whether it differs.
func (s *Site) merge() {
	same := s.sameTargets()
	number := make([]int, len(s.Objects)) // that an object has afterwards
	var kept []Object
	for i, o := range s.Objects {
		if same[i] == i {
			number[i] = len(kept)
			kept = append(kept, o)
		}
	}
	for i := range s.Objects {
		number[i] = number[same[i]]
		kept[number[i]].again(&s.Objects[i])
	}
	s.Objects = kept
	for i := range s.Pages {
		p := &s.Pages[i]
		p.Document = number[p.Document]
		for j := range p.Loads {
			p.Loads[j].Object = number[p.Loads[j].Object]
		}
	}
}

// sameTargets returns for each object another one whose target differs only in tokens, or itself. Some random tokens do not look like it,
// so those that do are looked at first.
func (s *Site) sameTargets() []int {
	type kind struct {
		mediaType string
		length    int
	}
	given, known := s.Given(), map[kind][]int{}
	same := make([]int, len(s.Objects))
	for _, random := range []bool{true, false} {
		for i := range s.Objects {
			o := &s.Objects[i]
			if len(tokens(o.URL)) > 0 != random {
				continue
			}
			same[i] = i
			if o.Method != http.MethodGet || o.Status != http.StatusOK || given.In(o.URL) {
				continue
			}
			of := kind{o.Type, len(o.URL)}
			at := slices.IndexFunc(known[of], func(other int) bool {
				_, err := carrier.Target.Extract([]byte(s.Objects[other].URL), []byte(o.URL))
				return err == nil
			})
			switch {
			case at >= 0:
				same[i] = known[of][at]
			case random:
				known[of] = append(known[of], i)
			}
		}
	}
	return same
}

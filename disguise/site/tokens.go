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

// tokens returns the random tokens of a target. A name is no token, however long it is.
func tokens(target string) []string {
	names := parts(blank(target))
	return slices.DeleteFunc(parts(target), func(part string) bool { return slices.Contains(names, part) })
}

// blank returns a target with zeros in place of its random tokens.
func blank(target string) string {
	out, err := carrier.Target.Embed([]byte(target), make([]byte, carrier.Target.Capacity([]byte(target))))
	if err != nil {
		return target
	}
	return string(out)
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

// sameTargets returns for each object another one whose target differs only in tokens, or itself.
func (s *Site) sameTargets() []int {
	type kind struct {
		mediaType string
		length    int
	}
	given, first, known := s.Given(), map[string]int{}, map[kind][]int{}
	same := make([]int, len(s.Objects))
	var odd []int // some random tokens do not look like it
	for i := range s.Objects {
		o := &s.Objects[i]
		same[i] = i
		if o.Method != http.MethodGet || o.Status != http.StatusOK || len(parts(o.URL)) == 0 || given.In(o.URL) {
			continue
		}
		if len(tokens(o.URL)) == 0 {
			odd = append(odd, i)
			continue
		}
		key := o.Type + " " + blank(o.URL)
		if at, found := first[key]; found {
			same[i] = at
			continue
		}
		first[key] = i
		of := kind{o.Type, len(o.URL)}
		known[of] = append(known[of], i)
	}
	for _, i := range odd {
		o := &s.Objects[i]
		for _, other := range known[kind{o.Type, len(o.URL)}] {
			if _, err := carrier.Target.Extract([]byte(s.Objects[other].URL), []byte(o.URL)); err == nil {
				same[i] = other
				break
			}
		}
	}
	return same
}

package space

import (
	"cmp"
	"iter"
	"slices"
)

// index finds tuples by their first two fields, in order of arrival. Most templates specify these fields.
type index map[string][]*tuple

// all is the key of the list of all tuples.
const all = ""

func keysOf(t Tuple) []string {
	one := string(appendField([]byte{uint8(len(t))}, t[0]))
	if len(t) == 1 {
		return []string{all, one}
	}
	return []string{all, one, string(appendField([]byte(one), t[1]))}
}

// keyFor returns the key of the shortest list that contains all matches of a template.
func keyFor(p Template) string {
	switch {
	case len(p) == 0 || !p[0].IsValue():
		return all
	case len(p) == 1 || !p[1].IsValue():
		return string(appendField([]byte{uint8(len(p))}, p[0]))
	}
	return string(appendField(appendField([]byte{uint8(len(p))}, p[0]), p[1]))
}

func bySeq(t *tuple, seq uint64) int { return cmp.Compare(t.Seq, seq) }

func (x index) add(t *tuple) {
	for _, key := range keysOf(t.Tuple()) {
		at, _ := slices.BinarySearchFunc(x[key], t.Seq, bySeq)
		x[key] = slices.Insert(x[key], at, t)
	}
}

func (x index) remove(t *tuple) {
	for _, key := range keysOf(t.Tuple()) {
		list := x[key]
		at, found := slices.BinarySearchFunc(list, t.Seq, bySeq)
		if !found {
			continue
		}
		if x[key] = slices.Delete(list, at, at+1); len(x[key]) == 0 {
			delete(x, key)
		}
	}
}

// matches returns the tuples with a Seq above after that match a template.
func (x index) matches(p Template, after uint64) iter.Seq[*tuple] {
	return func(yield func(*tuple) bool) {
		list := x[keyFor(p)]
		at, _ := slices.BinarySearchFunc(list, after+1, bySeq)
		for _, t := range list[at:] {
			if p.Matches(t.Tuple()) && !yield(t) {
				return
			}
		}
	}
}

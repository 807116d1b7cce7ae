package defence

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
)

// frameSize is of what a unit has before its description, in bytes.
const frameSize = 8

// rest describes all units of an object but the first.
const rest = "{}"

// cut says how many units an object has, once it is there.
func (d *Defence) cut(key loadKey, l *load) {
	if d.unit == 0 {
		return
	}
	if frameSize+len(l.meta) > d.unit { // its headers alone would show
		l.failed = !l.passed
	}
	units := unitsOf(d.unit, len(l.meta), len(l.body))
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.count, l.left = units, units-1; l.left == 0 {
		d.forget(key, l)
	}
}

// unitsOf returns how many units an object takes.
func unitsOf(unit, meta, body int) int {
	first, each := max(0, unit-frameSize-meta), unit-frameSize-len(rest)
	return 1 + (max(0, body-first)+each-1)/each
}

// unitOf returns one unit of an object. One that it does not have is empty.
func (d *Defence) unitOf(l *load, index int) (meta, content []byte) {
	first, each := d.unit-frameSize-len(l.meta), d.unit-frameSize-len(rest)
	if index == 0 {
		return l.meta, l.body[:min(first, len(l.body))]
	}
	from := min(first+(index-1)*each, len(l.body))
	return []byte(rest), l.body[from:min(from+each, len(l.body))]
}

// pad sends a unit without content, to a page that needed so many units, and tells how many a page has: one more than any needed.
func (d *Defence) pad(w http.ResponseWriter, needed int, page string) {
	need := min(int64(needed)+1, mostPage)
	for most := d.page.Load(); most < need && !d.page.CompareAndSwap(most, need); most = d.page.Load() {
	}
	if number, err := strconv.Atoi(page); err == nil { // an older worker gives no number
		d.pages.needed(number, int(need)-1)
	}
	d.tell(w.Header(), 0)
	d.send(w, int(d.page.Load()), []byte(rest), nil)
}

// pageHeader is of an answer with a unit: how many units the page that the object opens needed at most, how many any page has, and the
// number of the page. The first is 0 if nobody opened the page yet, and the last if the object opens none that is known.
const pageHeader = "Heddle-Page"

func (d *Defence) tell(h http.Header, page int) {
	h.Set(pageHeader, fmt.Sprintf("%04d %04d %04d", d.pages.need(page), d.page.Load(), page)) // as long as any other
}

// mostPages bounds how many pages of a site are known.
const mostPages = 4096

// sitePages are the pages of a site by their paths, with the most units that each needed. It is safe for concurrent use.
type sitePages struct {
	mu      sync.Mutex
	numbers map[string]int // from 1
	needs   []int
}

// number returns that of a page, or 0 if there are too many.
func (s *sitePages) number(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.numbers[path]
	if !ok && len(s.needs) < mostPages {
		s.needs = append(s.needs, 0)
		n = len(s.needs)
		s.numbers[path] = n
	}
	return n
}

// need returns the most units that a page needed, or 0 if that is not known.
func (s *sitePages) need(number int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number < 1 || number > len(s.needs) {
		return 0
	}
	return s.needs[number-1]
}

// needed notes that a page needed so many units.
func (s *sitePages) needed(number, units int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number >= 1 && number <= len(s.needs) {
		s.needs[number-1] = max(s.needs[number-1], units)
	}
}

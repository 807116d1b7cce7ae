package defence

import "net/http"

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
func (d *Defence) pad(w http.ResponseWriter, needed int) {
	need := min(int64(needed)+1, mostPage)
	for most := d.page.Load(); most < need && !d.page.CompareAndSwap(most, need); most = d.page.Load() {
	}
	d.send(w, int(d.page.Load()), []byte(rest), nil)
}

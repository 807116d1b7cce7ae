package defence

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"

	"heddle/internal/draw"
)

// preloadHeader is of the request that the browser sends itself when a page or frame opens that has the worker (Service Workers, Navigation
// Preload). Its Sec-Fetch-Site tells who leads there, while that of the worker's requests is always same-origin.
const preloadHeader = "Service-Worker-Navigation-Preload"

// loadHeader is of the answer to such a request, which is the first piece of an object: "ID COUNT", by which the worker asks for the rest.
const loadHeader = "Heddle-Load"

// preload answers with the first piece of a page that opens. It draws what the worker draws for other objects.
func (d *Defence) preload(w http.ResponseWriter, r *http.Request, visitor string) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	a := asked{id: hex.EncodeToString(id[:]), mode: "navigate", dest: r.Header.Get("Sec-Fetch-Dest")}
	if d.unit == 0 {
		a.count = 1 + draw.Below(d.strategy.Most())
	}
	r.Header.Del(preloadHeader)
	w.Header().Set(loadHeader, fmt.Sprintf("%s %d", a.id, a.count))
	d.answer(w, r, visitor, a)
}

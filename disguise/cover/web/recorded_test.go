package web

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"heddle/disguise/cover/web/webtest"
)

// Everybody gets each object as it was recorded, again and again.
func TestRecorded(t *testing.T) {
	s := webtest.Site()
	h := Recorded(s)
	ask := func(method, target string, body []byte) *http.Response {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, target, bytes.NewReader(body)))
		return w.Result()
	}
	for i := range s.Objects {
		o := &s.Objects[i]
		for range 2 {
			r := ask(o.Method, o.URL, o.Posted)
			var got bytes.Buffer
			if _, err := got.ReadFrom(r.Body); err != nil {
				t.Fatal(err)
			}
			if r.StatusCode != o.Status || !bytes.Equal(got.Bytes(), o.Body) || o.Fresh() != "" && r.Header.Get("ETag") != "" {
				t.Errorf("%s %s: %d, %d bytes, want %d, %d: %v", o.Method, o.URL, r.StatusCode, got.Len(), o.Status, len(o.Body), r.Header)
			}
		}
	}
	if r := ask(http.MethodHead, "/", nil); r.StatusCode != http.StatusOK || r.ContentLength < 1 {
		t.Errorf("HEAD: %+v", r)
	}
	for target, want := range map[string]int{"/nothing": http.StatusNotFound, "http://other.example/": http.StatusOK} {
		if r := ask(http.MethodGet, target, nil); r.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, r.StatusCode, want)
		}
	}
	if r := ask(http.MethodPost, "/", make([]byte, mostBody+1)); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %d", r.StatusCode)
	}
}

package markup

import (
	"html/template"
	"strings"
	"testing"
)

// Texts and attributes are escaped as html/template does.
func TestPrintf(t *testing.T) {
	var every strings.Builder
	for c := rune(0); c < 0x180; c++ {
		every.WriteRune(c)
	}
	for _, text := range []string{every.String(), `"><script>alert('1')</script>&amp;`, ""} {
		var want strings.Builder
		if err := template.Must(template.New("").Parse(`<p title="{{.}}">{{.}}</p>`)).Execute(&want, text); err != nil {
			t.Fatal(err)
		}
		var p Page
		p.Printf(`<p title="%s">%s</p>`, text, text)
		if p.String() != want.String() {
			t.Errorf("%q, want %q", p.String(), want.String())
		}
	}
}

type name string

func (name) String() string { return "<i>" }

func TestTypes(t *testing.T) {
	var p Page
	p.Put("<p>", Escape("<"), HTML("<br>"))
	p.Printf("%s %d %s %v %s", HTML("<b>"), 7, name("x"), []string{"<u>"}, error(nil))
	p.List([]string{"<", "b"})
	const want = "<p>&lt;<br><b> 7 &lt;i&gt; [&lt;u&gt;] &lt;nil&gt;<ul><li>&lt;</li><li>b</li></ul>"
	if p.String() != want {
		t.Errorf("%q, want %q", p.String(), want)
	}
}

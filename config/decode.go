package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"heddle/disguise/cover"
	"heddle/internal/errhint"
)

// decoder fills a Config from TOML and remembers the place of each value. go-toml's Unmarshal would stop at the first
// value of a wrong type; we report all of them.
type decoder struct {
	document
	parser unstable.Parser
	config *Config // nil for a file without tables
	// target is the table that keys are set in. Its key is a prefix such as "up[0].", or "" before any table. It is
	// invalid while the keys of an unknown table are skipped.
	target reflect.Value
	prefix string
	all    map[string]any // the values of the whole document
	values map[string]any // those of the table
}

// decode reads a document into a [Config], or, for a file without tables, into another struct with such tags. If it is
// not TOML, the only problem is the first syntax error.
func decode(file string, data []byte, into any) *document {
	d := &decoder{document: newDocument(file, data), target: reflect.ValueOf(into).Elem()}
	d.config, _ = into.(*Config)
	d.run()
	return &d.document
}

func (d *decoder) run() {
	if err := toml.Unmarshal(d.data, &d.all); err != nil {
		d.syntax(err)
		return
	}
	d.values = d.all
	d.parser.Reset(d.data)
	for d.parser.NextExpression() {
		switch node := d.parser.Expression(); node.Kind {
		case unstable.KeyValue:
			d.keyValue(node)
		case unstable.Table, unstable.ArrayTable:
			d.table(node)
		}
	}
	if err := d.parser.Error(); err != nil {
		d.syntax(err)
	}
}

func (d *decoder) syntax(err error) {
	what := strings.TrimPrefix(err.Error(), "toml: ")
	hint := "this is not TOML: text stands in quotes, lists in [ ], a table's name in [[ ]]"
	if strings.Contains(what, "already") {
		hint = "a key stands once in its table, and is either a value or a table"
	}
	var at place
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		at = place{offset: d.offset(line, column), length: 1}
	}
	d.report(at, SeverityError, "", what, hint)
}

func (d *decoder) table(node *unstable.Node) {
	name, at := d.key(node)
	d.target = reflect.Value{}
	switch {
	case d.config == nil:
		d.report(at, SeverityError, name, "this file has no tables", "write its keys without [ ] before them")
	case tables[name] == nil:
		d.report(at, SeverityError, name, fmt.Sprintf("no table is called %q", name), "tables: [[up]], [[split]], [[serve]], [[dial]] and [[rule]]")
	case node.Kind == unstable.Table:
		d.report(at, SeverityError, name, fmt.Sprintf("there can be several %ss", name), fmt.Sprintf("write [[%s]]", name))
	default:
		list, _ := fieldNamed(reflect.ValueOf(d.config).Elem(), name)
		i := list.Len()
		list.Set(reflect.Append(list, reflect.ValueOf(tables[name](d.config.Paths))))
		d.target, d.values = list.Index(i), d.all[name].([]any)[i].(map[string]any)
		d.prefix = fmt.Sprintf("%s[%d].", name, i)
		d.places[d.prefix] = at
	}
}

// tables are the tables of a heddle.toml. The functions return tables with defaults, given the keys before the first table.
var tables = map[string]func(Paths) any{
	"up":    func(p Paths) any { return DefaultUp(p) },
	"split": func(p Paths) any { return DefaultSplit(p) },
	"serve": func(p Paths) any {
		s := DefaultStreamServe()
		s.Identity = p.Identity
		return s
	},
	"dial": func(p Paths) any {
		d := DefaultStreamDial()
		d.Secret, d.Identity = p.Secret, p.Identity
		return d
	},
	"rule": func(Paths) any { return Rule{} },
}

func (d *decoder) keyValue(node *unstable.Node) {
	if !d.target.IsValid() {
		return
	}
	written, at := d.key(node)
	name, old := spellings(d.target.Type(), written)
	field, known := fieldNamed(d.target, name)
	if !known || tables[name] != nil {
		d.unknownKey(name, at)
		return
	}
	key := d.prefix + name
	if _, twice := d.places[key]; twice { // go-toml refuses only the same spelling twice
		d.report(at, SeverityError, key, name+" and its old spelling "+old+" are both given", "remove "+old)
		return
	}
	d.places[key] = at
	if value := d.placeOf(node.Value()); value.length > 0 {
		d.places[key] = value
	}
	d.set(field, key, d.values[written], node.Value())
}

func (d *decoder) unknownKey(name string, at place) {
	if tables[name] != nil && d.config != nil {
		d.report(at, SeverityError, d.prefix+name, name+" is a table", fmt.Sprintf("write [[%s]] on a line of its own", name))
		return
	}
	known := fieldNames(d.target.Type())
	hint := "keys: " + strings.Join(known, ", ")
	if near := nearest(name, known); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		if like := reflect.TypeOf(tables[table](Paths{})); d.config != nil && like != d.target.Type() && slices.Contains(fieldNames(like), name) {
			hint = fmt.Sprintf("it is a key of a [[%s]] table", table)
		}
	}
	if secretWord.MatchString(name) && d.config != nil {
		hint = "secrets stay in the wg-quick file that file names"
	}
	d.report(at, SeverityError, d.prefix+name, fmt.Sprintf("no key is called %q", name), hint)
}

// set sets a field, or reports that the value is of the wrong type. node is the value's place.
func (d *decoder) set(field reflect.Value, key string, value any, node *unstable.Node) {
	check := func(ok bool, want, example string) {
		if !ok {
			d.wrong(key, fmt.Sprintf("%s is %s, not %s", key[len(d.prefix):], want, describe(node)), "write it as "+example)
		}
	}
	switch target := field.Addr().Interface().(type) {
	case *string:
		text, ok := value.(string)
		check(put(target, text, ok), "a text", "a text in quotes")
	case *bool:
		yes, ok := value.(bool)
		check(put(target, yes, ok), "true or false", "true or false, without quotes")
	case *int:
		n, ok := value.(int64)
		ok = ok && n == int64(int32(n))
		check(put(target, int(n), ok), "a whole number", "a number without quotes, such as 2")
	case **uint64:
		n, ok := value.(int64)
		check(put(target, new(uint64(n)), ok && n >= 0), "a whole number from 0", "a number without quotes, such as 42")
	case *float64:
		n, ok := value.(float64)
		if whole, is := value.(int64); is {
			n, ok = float64(whole), true
		}
		check(put(target, n, ok && !math.IsNaN(n)), "a number", "a number without quotes, such as 1.5")
	case *time.Duration:
		text, _ := value.(string)
		n, err := time.ParseDuration(text)
		check(put(target, n, err == nil), "a time", `"90s" or "5m"`)
	case *[]string:
		d.setList(target, key, node)
	case *cover.Specs:
		if text, one := value.(string); one {
			*target = cover.Specs{text}
		} else {
			d.setList((*[]string)(target), key, node)
		}
	case interface{ Set(string) error }:
		text, ok := value.(string)
		check(ok, "a text", "a text in quotes")
		if err := target.Set(text); ok && err != nil {
			d.wrong(key, key[len(d.prefix):]+": "+err.Error(), errhint.Of(err))
		}
	}
}

func put[T any](target *T, value T, ok bool) bool {
	if ok {
		*target = value
	}
	return ok
}

func (d *decoder) setList(target *[]string, key string, node *unstable.Node) {
	name := key[len(d.prefix):]
	if node.Kind != unstable.Array {
		d.wrong(key, fmt.Sprintf("%s is a list, not %s", name, describe(node)), `write it as ["home=if:eth0", "lte=if:wwan0"]`)
		return
	}
	*target = nil
	for elements := node.Children(); elements.Next(); {
		element := elements.Node()
		if element.Kind == unstable.Comment {
			continue
		}
		at := fmt.Sprintf("%s[%d]", key, len(*target))
		d.places[at] = d.placeOf(element)
		if element.Kind != unstable.String {
			d.report(d.places[at], SeverityError, at, fmt.Sprintf("%s holds texts, not %s", name, describe(element)), "put it in quotes")
			continue
		}
		*target = append(*target, string(element.Data))
	}
}

// key returns a node's dotted key, and its place.
func (d *decoder) key(node *unstable.Node) (string, place) {
	var parts []string
	var at place
	for keys := node.Key(); keys.Next(); {
		part := d.placeOf(keys.Node())
		if len(parts) == 0 {
			at = part
		}
		at.length = part.offset + part.length - at.offset
		parts = append(parts, string(keys.Node().Data))
	}
	return strings.Join(parts, "."), at
}

func (d *decoder) placeOf(node *unstable.Node) place {
	at := node.Raw
	if at.Length == 0 && node.Kind == unstable.Bool {
		at = d.parser.Range(node.Data)
	}
	return place{offset: int(at.Offset), length: int(at.Length)}
}

// describe names the type of a wrong value.
func describe(node *unstable.Node) string {
	switch node.Kind {
	case unstable.String:
		return "a text"
	case unstable.Array:
		return "a list"
	case unstable.InlineTable:
		return "a table"
	}
	return string(node.Data)
}

// fieldNamed finds the field of a struct, or of one it embeds, by its key.
func fieldNamed(table reflect.Value, key string) (reflect.Value, bool) {
	for _, f := range reflect.VisibleFields(table.Type()) {
		if tag := f.Tag.Get("toml"); tag == key && tag != "-" {
			return table.FieldByIndex(f.Index), true
		}
	}
	return reflect.Value{}, false
}

// spellings returns the current and the former name of a key, of which key is one.
func spellings(table reflect.Type, key string) (name, old string) {
	for _, f := range reflect.VisibleFields(table) {
		if name, old := f.Tag.Get("toml"), f.Tag.Get("old"); old != "" && (key == old || key == name) {
			return name, old
		}
	}
	return key, ""
}

func fieldNames(table reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(table) {
		if tag := f.Tag.Get("toml"); tag != "" && tag != "-" && tables[tag] == nil {
			names = append(names, tag)
		}
	}
	slices.Sort(names)
	return names
}

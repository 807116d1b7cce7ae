package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayWithFlags are the methods of a flag set that declare nothing.
var mayWithFlags = []string{"Changed", "Lookup", "Visit", "VisitAll", "SetInterspersed", "Args"}

// handMade gives the places where a file of a command declares a flag, or says what completes it, without
// heddle/cmd/heddle/internal/bind.
func handMade(file *ast.File) (places []token.Pos) {
	var allowed []ast.Expr
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if slices.Contains(mayWithFlags, s.Sel.Name) {
			allowed = append(allowed, s.X)
		}
		switch s.Sel.Name {
		case "RegisterFlagCompletionFunc", "MarkFlagFilename", "MarkFlagDirname", "MarkPersistentFlagFilename", "MarkPersistentFlagDirname":
			places = append(places, s.Pos())
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if ok && (s.Sel.Name == "Flags" || s.Sel.Name == "PersistentFlags") && len(call.Args) == 0 && !slices.Contains(allowed, ast.Expr(call)) {
			places = append(places, call.Pos())
		}
		return true
	})
	return places
}

// Name, key, default, help and completion of a flag stand in one struct, so that they cannot differ.
func TestFlagsComeFromTags(t *testing.T) {
	checked := 0
	files(t, func(name string, text []byte) {
		if !strings.HasPrefix(name, "cmd/heddle/") || strings.HasPrefix(name, "cmd/heddle/internal/bind/") ||
			filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return
		}
		checked++
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, 0)
		if err != nil {
			t.Error(err)
			return
		}
		for _, at := range handMade(file) {
			t.Errorf("%v: a flag is declared by hand: give it a field with tags, and bind.Flags the struct", set.Position(at))
		}
	})
	if checked < 50 {
		t.Errorf("only %d files of commands: is this the root of the tree?", checked)
	}
}

func TestHandMadeFlags(t *testing.T) {
	for body, want := range map[string]int{
		`cmd.Flags().StringVar(&s, "to", "", "where")`:             1,
		`to := cmd.Flags().String("to", "", "where")`:              1,
		`flags := cmd.Flags(); flags.Bool("all", false, "all")`:    1,
		`cmd.PersistentFlags().VarP(v, "to", "t", "where")`:        1,
		`_ = cmd.RegisterFlagCompletionFunc("via", CompleteVia)`:   1,
		`if cmd.Flags().Changed("to") { return }`:                  0,
		`bind.Flags(cmd, &s)`:                                      0,
		`cmd.Flags().Lookup("path").Usage = "another path"`:        0,
		`cmd.MarkFlagsMutuallyExclusive("all-pairs", "tables")`:    0,
		`cmd.Flags().SetInterspersed(false); cmd.Flags().Int("n")`: 1,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\nfunc f() {\n"+body+"\n}", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(handMade(file)); got != want {
			t.Errorf("%s: %d found, want %d", body, got, want)
		}
	}
}

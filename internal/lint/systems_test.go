package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	load "golang.org/x/tools/go/packages"
)

// systems are those that the binary is for beside Linux; `make cross` builds it for them.
var systems = []string{"windows/amd64", "darwin/amd64", "freebsd/amd64", "android/arm64"}

// Building four times from cold caches costs minutes, so this only checks types, and reads no function of other modules.
func TestBinaryFitsOtherSystems(t *testing.T) {
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			goos, goarch, _ := strings.Cut(system, "/")
			all, err := load.Load(&load.Config{
				Mode: load.NeedName | load.NeedFiles | load.NeedCompiledGoFiles | load.NeedImports | load.NeedDeps |
					load.NeedTypes | load.NeedTypesSizes | load.NeedSyntax,
				Dir: top,
				Env: append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
				ParseFile: func(files *token.FileSet, name string, text []byte) (*ast.File, error) {
					file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
					if err == nil && !strings.HasPrefix(name, top+string(filepath.Separator)) {
						dropBodies(file)
					}
					return file, err
				},
			}, "./cmd/heddle")
			if err != nil {
				t.Fatal(err)
			}
			ours := 0
			load.Visit(all, nil, func(p *load.Package) {
				if !strings.HasPrefix(p.PkgPath, "heddle/") {
					return // without bodies, its imports are not used
				}
				ours++
				for _, e := range p.Errors {
					t.Errorf("%s: %v", p.PkgPath, e)
				}
			})
			if ours < 20 {
				t.Errorf("%d packages of this module were checked", ours)
			}
		})
	}
}

func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}

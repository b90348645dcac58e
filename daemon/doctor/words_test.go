package doctor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryTroubleSaysWhatToDo: what is wrong without what to do about it helps nobody. mending, sysctls and loading say it by the commands.
func TestEveryTroubleSaysWhatToDo(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	troubles := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		said := map[ast.Node]bool{} // by the call around it
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if by, ok := call.Fun.(*ast.Ident); ok && slices.Contains([]string{"mending", "sysctls", "loading"}, by.Name) {
				said[call.Args[0]] = true
			}
			selected, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || selected.Sel.Name != "warn" && selected.Sel.Name != "fail" || len(call.Args) != 4 {
				return true
			}
			troubles++
			if do, ok := call.Args[3].(*ast.BasicLit); ok && do.Value == `""` && !said[call] {
				t.Errorf("%s: nothing is said of what to do", set.Position(call.Pos()))
			}
			return true
		})
	}
	if troubles < 40 {
		t.Errorf("only %d troubles were looked at", troubles)
	}
}

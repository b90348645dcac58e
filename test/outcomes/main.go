// Command outcomes finds decisions that read a sentence. What people are told is in fields called Why, Message, What, Note and AnsweredBy, and is
// made from values: whoever decides reads those. It looks for a search in such a field, and for one that is compared with words.
// usage: outcomes DIR...; "//outcome:older" at the end of a line permits one, for what an older Kith has stored.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var (
	sentences = []string{"Why", "Message", "What", "Note", "AnsweredBy"}
	searches  = []string{"HasPrefix", "HasSuffix", "CutPrefix", "CutSuffix", "Contains", "EqualFold", "Index", "MatchString"}
)

const permitted = "//outcome:older"

func main() {
	var all []string
	for _, dir := range os.Args[1:] {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			// What only tests use is in files or packages whose names say so.
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found, err := in(path, source)
			all = append(all, found...)
			return err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, "outcomes:", err)
			os.Exit(2)
		}
	}
	for _, f := range all {
		fmt.Println(f)
	}
	if len(all) > 0 {
		os.Exit(1)
	}
}

// in gives what there is in one file, each with its place.
func in(path string, source []byte) (found []string, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	allowed := map[int]bool{} // lines
	for _, group := range file.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, permitted) {
				allowed[set.Position(c.Pos()).Line] = true
			}
		}
	}
	note := func(n ast.Node, what string) {
		if at := set.Position(n.Pos()); !allowed[at.Line] {
			found = append(found, fmt.Sprintf("%s:%d: %s: a decision reads a sentence (have a field with a closed set of values for it)", path, at.Line, what))
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			of, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(searches, of.Sel.Name) || len(n.Args) == 0 {
				return true
			}
			if name := sentence(n.Args[0]); name != "" {
				note(n, of.Sel.Name+" of "+name)
			}
		case *ast.BinaryExpr:
			if n.Op != token.EQL && n.Op != token.NEQ {
				return true
			}
			for _, side := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
				if name := sentence(side[0]); name != "" && words(side[1]) {
					note(n, name+" is compared with words")
				}
			}
		}
		return true
	})
	return found, nil
}

// sentence is the name of the field that an expression reads, if it is one for people.
func sentence(e ast.Expr) string {
	if of, ok := e.(*ast.SelectorExpr); ok && slices.Contains(sentences, of.Sel.Name) {
		return of.Sel.Name
	}
	return ""
}

// words reports whether an expression makes words: a literal that is not empty, a sum, or a call.
func words(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING && len(e.Value) > len(`""`)
	case *ast.BinaryExpr:
		return e.Op == token.ADD
	case *ast.CallExpr:
		return true
	}
	return false
}

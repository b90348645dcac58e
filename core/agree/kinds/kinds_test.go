package kinds

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"kith.dev/core/api/v1alpha1"
	"kith.dev/test/docs"
)

func kindOf(t *testing.T, o Object) *Kind {
	t.Helper()
	i := slices.IndexFunc(All, func(k *Kind) bool { return reflect.TypeOf(k.Type) == reflect.TypeOf(o) })
	if i < 0 {
		t.Fatalf("%T is of no kind", o)
	}
	return All[i]
}

func TestRowsAreWhole(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, k := range All {
		if gvks, _, err := scheme.ObjectKinds(k.Type); err != nil || !slices.Contains(gvks, k.GVK()) {
			t.Errorf("%s: its type is %v, %v", k, gvks, err)
		}
		if plural, _ := meta.UnsafeGuessKindToResource(k.GVK()); plural != k.Resource {
			t.Errorf("%s: its resource is %s, want %s", k, k.Resource, plural)
		}
		if seen[k.Name] || seen[k.Resource.Resource] {
			t.Errorf("%s is there twice", k)
		}
		seen[k.Name], seen[k.Resource.Resource] = true, true
		if written := slices.Contains(Written(), k); written != (k.Direction != Back) || written && k.MetadataPolicy == "" && len(k.Bounds) == 0 {
			t.Errorf("%s: a consumer writes it: %v, and no admission policy holds it", k, written)
		}
		if k.Map != nil && (k.Direction != Out || k.MetadataPolicy == "" || k.Quota.Name == "" || k.Quota.Most == 0) {
			t.Errorf("%s is reflected, and has no policy for its metadata, or no quota", k)
		}
		if watched := k.Map != nil && !k.ByReference || k == Pod; watched != (k.Informer != nil) {
			t.Errorf("%s is watched whole at home: %v, and a row without its informer, or one with", k, watched)
		}
		if k.Map == nil && (k.ByReference || k.Stays != nil || k.Depends != nil || k.OfPods || k.TakeOut != nil) {
			t.Errorf("%s is not reflected, and says how", k)
		}
	}
}

// What a consumer may write that the policies do not look at would not be bounded at all.
func TestEveryReflectedKindIsBounded(t *testing.T) {
	for _, k := range Reflected() {
		if !slices.ContainsFunc(Bounds(), func(b Bound) bool {
			return b.Deletes && slices.Contains(b.Kinds, k) && reflect.DeepEqual(b.Rules, metadataRules)
		}) {
			t.Errorf("%s: no policy", k)
		}
	}
	for _, b := range Bounds() {
		for _, k := range b.Kinds {
			if k.Resource.GroupVersion() != b.Kinds[0].Resource.GroupVersion() {
				t.Errorf("policy %s is for kinds of two groups", b.Name)
			}
		}
	}
}

func TestThePageSaysTheseBoundsOfObjects(t *testing.T) {
	docs.Say(t, "security.md",
		fmt.Sprintf("| labels, annotations, finalizers of an object | %d, %d of %d KiB, %d |", MaxMarks, MaxMarks, MaxMark>>10, MaxFinalizers),
		fmt.Sprintf("| %d; %d, each of which counts as %d bytes that are kept |", maxPorts, maxPairs, weightOfPair),
		fmt.Sprintf("| %d; %d each |", PodDisruptionBudget.Quota.Most, maxTerms),
		fmt.Sprintf("| entries of a ConfigMap or Secret | %d |", maxEntries),
	)
}

// Another list would be one that the next kind is missing from.
func TestNobodyElseListsKinds(t *testing.T) {
	names := map[string]bool{}
	for _, k := range Reflected() {
		names[k.Name], names[k.Resource.Resource] = true, true
	}
	rooms := []string{"../../consume", "../../provide/hosting"}
	for _, room := range rooms {
		err := filepath.WalkDir(room, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, _ := strconv.Unquote(literal.Value); names[text] {
						t.Errorf("%s: %s belongs into the table of kinds", files.Position(n.Pos()), literal.Value)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"kith.dev/test/lab"
)

// rightsPage has a part for each account and user that Kith makes in a cluster. The stories in which there are such accounts compare their parts with
// what the API server says, and write them with KITH_UPDATE=1; its first lines are written by hand.
const rightsPage = "../../docs/rights.md"

// account is somebody that Kith makes, or gives rights to.
type account struct {
	title    string       // of its part of the page, with its name between backquotes
	as       []string     // a user, and groups
	everyone []string     // a user who may what such accounts may in any cluster, beside what every user may
	others   []particular // namespaces in which it may more
}

// consumerAccount is that of a consumer, by its compact ID.
func consumerAccount(id, twin string) account {
	return account{"A consumer: user `kith:peer:ID`, group `kith:peers`", []string{"kith:peer:" + id, "kith:peers", "system:authenticated"}, nil, []particular{{twin, "its twin namespaces"}}}
}

// particular is a namespace, and what the page calls it.
type particular struct{ namespace, called string }

// rightsOf lists what a user may do in a namespace, one right in each line.
func rightsOf(t *testing.T, at *lab.Laptop, namespace string, as ...string) (list []string) {
	t.Helper()
	args := []string{"auth", "can-i", "--list", "--no-headers", "-n", namespace}
	for i, who := range as {
		if i == 0 {
			args = append(args, "--as="+who)
		} else {
			args = append(args, "--as-group="+who)
		}
	}
	columns := regexp.MustCompile(`^(.*?)\s+\[([^\]]*)\]\s+\[([^\]]*)\]\s+\[([^\]]*)\]\s*$`)
	for line := range strings.Lines(kubectl(t, at, args...)) {
		m := columns.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			t.Fatalf("a line of another form: %q", line)
		}
		what := strings.TrimSpace(m[1])
		if m[2] != "" {
			what = m[2] // a path
		}
		list = append(list, fmt.Sprintf("| %s | %s | %s |", what, strings.ReplaceAll(m[3], " ", ", "), m[4]))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// part is that of an account, without its title.
func (a account) part(t *testing.T, at *lab.Laptop) string {
	t.Helper()
	var text strings.Builder
	write := func(where string, list []string) {
		if len(list) == 0 {
			fmt.Fprintf(&text, "\n%s nothing.\n", where)
			return
		}
		fmt.Fprintf(&text, "\n%s\n\n| resource or path | names | verbs |\n|---|---|---|\n%s\n", where, strings.Join(list, "\n"))
	}
	beyond := func(namespace string, less ...string) []string {
		less = append(less, rightsOf(t, at, namespace, "nobody")...)
		if len(a.everyone) > 0 {
			less = append(less, rightsOf(t, at, namespace, a.everyone...)...)
		}
		more, _ := difference(rightsOf(t, at, namespace, a.as...), less)
		return more
	}
	all := beyond("default")
	write("In every namespace, and of what has none:", all)
	for _, o := range a.others {
		write("In "+o.called+" besides:", beyond(o.namespace, all...))
	}
	return text.String()
}

const partTitle = "\n## "

// rights compares the parts of accounts with what the API server says, and has nobody else have rights who is not on the page.
func rights(t *testing.T, at *lab.Laptop, accounts ...account) {
	t.Helper()
	file, err := os.ReadFile(rightsPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(file), partTitle)
	parts := strings.Split(rest, partTitle)
	for _, a := range accounts {
		is := a.title + "\n" + a.part(t, at)
		i := slices.IndexFunc(parts, func(p string) bool { title, _, _ := strings.Cut(p, "\n"); return title == a.title })
		switch {
		case os.Getenv("KITH_UPDATE") != "" && i < 0:
			parts = append(parts, is)
		case os.Getenv("KITH_UPDATE") != "":
			parts[i] = is
		case i < 0:
			t.Errorf("docs/rights.md has no part %q (KITH_UPDATE=1 writes it)", a.title)
		default:
			// The last part ends with the page.
			less, more := difference(strings.Split(strings.TrimSpace(parts[i]), "\n"), strings.Split(strings.TrimSpace(is), "\n"))
			if len(less) > 0 || len(more) > 0 {
				t.Errorf("docs/rights.md, %s, is not what the API server says (KITH_UPDATE=1 writes it):\nmore than it says:\n%s\nless than it says:\n%s",
					a.title, strings.Join(more, "\n"), strings.Join(less, "\n"))
			}
		}
	}
	for i := range parts {
		parts[i] = strings.TrimRight(parts[i], "\n") + "\n"
	}
	page := strings.TrimRight(head, "\n") + "\n" + partTitle + strings.Join(parts, partTitle)
	if os.Getenv("KITH_UPDATE") != "" {
		if err := os.WriteFile(rightsPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bound(t, at, page)
}

// bound finds who has rights by a binding that is not Kubernetes' own, and is on no title of the page.
func bound(t *testing.T, at *lab.Laptop, page string) {
	t.Helper()
	titles := strings.Join(regexp.MustCompile(`(?m)^## .*$`).FindAllString(page, -1), "\n")
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct {
				Namespace, Name string
				Labels          map[string]string
			}
			Subjects []rbacv1.Subject
		}
	}
	out := kubectl(t, at, "get", "clusterrolebindings,rolebindings", "-A", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, b := range list.Items {
		if b.Metadata.Labels["kubernetes.io/bootstrapping"] == "rbac-defaults" {
			continue
		}
		for _, s := range b.Subjects {
			seen++
			name := s.Name
			for _, id := range []string{"kith:peer:", "kith:laptop:"} { // followed by an ID
				if strings.HasPrefix(name, id) {
					name = id + "ID"
				}
			}
			if !strings.Contains(titles, "`"+name+"`") {
				t.Errorf("%s %s/%s gives rights to %s %s, who is on no title of docs/rights.md", b.Kind, b.Metadata.Namespace, b.Metadata.Name, s.Kind, s.Name)
			}
		}
	}
	if seen == 0 {
		t.Error("no binding is Kith's: this shows nothing")
	}
}

// difference of two lists.
func difference(before, after []string) (gone, come []string) {
	for _, s := range before {
		if !slices.Contains(after, s) {
			gone = append(gone, s)
		}
	}
	for _, s := range after {
		if !slices.Contains(before, s) {
			come = append(come, s)
		}
	}
	return gone, come
}

package kubeconfig

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
)

// given is a kubeconfig as kithd gives it; Y2E= and the like are "ca", "cert", "key".
const given = `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: Y2E=
    server: https://127.0.0.1:6451
  name: kith
contexts:
- context:
    cluster: kith
    user: anna
  name: kith
current-context: kith
kind: Config
users:
- name: anna
  user:
    client-certificate-data: Y2VydA==
    client-key-data: a2V5
`

// work is a person's own, with what Kith does not know and what must not be lost.
const work = `# mine: do not edit by hand
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
# the one in Frankfurt
- cluster: {server: "https://work.example.com:6443", certificate-authority: ca.pem, later-field: {a: [1, 2]}}
  name: work
users:
- name: anna # at work
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: work-login
      args: ["--realm", "eu"]
      interactiveMode: IfAvailable
contexts:
- name: work
  context: {cluster: work, user: anna, namespace: shop}
current-context: work
x-unknown: kept
`

// merged is what is added to it.
const merged = `- cluster:
    certificate-authority-data: Y2E=
    server: https://127.0.0.1:6451
    extensions:
    - extension:
        managed-by: kith
      name: kith.dev
  name: kith
`

func TestAMergeLeavesAllElseAsItIs(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	put(t, path, work, 0o644)
	p, err := Make(Ask{Files: []string{path}, Access: []byte(given)})
	if err != nil {
		t.Fatal(err)
	}
	if p.Path != path || p.Context != "kith" || p.Replaces || p.New || p.Uses || p.Current != "work" {
		t.Errorf("%+v", p)
	}
	if get(t, path) != work {
		t.Error("a plan changed the file")
	}
	backup, err := p.Write()
	if err != nil || get(t, backup) != work {
		t.Errorf("%v, backup %s:\n%s", err, backup, get(t, backup))
	}
	text := get(t, path)
	for _, line := range []string{"# mine: do not edit by hand\n", "# the one in Frankfurt\n", "- name: anna # at work\n", "later-field: {a: [1, 2]}", "x-unknown: kept\n", "current-context: work\n",
		`args: ["--realm", "eu"]`, "preferences: {colors: true}\n", merged} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is lost:\n%s", line, text)
		}
	}
	for _, file := range []string{path, backup} {
		if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if names := list(t, dir); names != "config config.before-kith" {
		t.Errorf("there are %s", names)
	}
	// What Kubernetes' own library reads.
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	kith, anna := c.Contexts["kith"], c.AuthInfos["anna"]
	if c.CurrentContext != "work" || c.Contexts["work"].Namespace != "shop" || kith.Cluster != "kith" || kith.AuthInfo != "kith" || anna.Exec.Command != "work-login" {
		t.Errorf("%+v", c)
	}
	if string(c.AuthInfos["kith"].ClientKeyData) != "key" || c.Clusters["kith"].Server != "https://127.0.0.1:6451" || string(c.Clusters["kith"].CertificateAuthorityData) != "ca" {
		t.Errorf("%+v, %+v", c.AuthInfos["kith"], c.Clusters["kith"])
	}
	// And when that library has written it, as kubectl does, Kith knows its own again.
	c.Contexts["kith"].Namespace = "mine"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	p, err = Make(Ask{Files: []string{path}, Access: []byte(strings.ReplaceAll(given, "6451", "7451")), Use: true})
	if err != nil || !p.Replaces || !p.Uses {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := p.Write(); err != nil {
		t.Fatal(err)
	}
	if c, err = clientcmd.LoadFromFile(path); err != nil || c.Clusters["kith"].Server != "https://127.0.0.1:7451" || c.Contexts["kith"].Namespace != "mine" || c.CurrentContext != "kith" || len(c.Contexts) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

// entry is a file with a context, and its cluster and user, of a name that leads somewhere.
func entry(name, server string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- {name: %[1]s, cluster: {server: %[2]q}}\nusers:\n- {name: %[1]s, user: {token: x}}\ncontexts:\n- {name: %[1]s, context: {cluster: %[1]s, user: %[1]s}}\n", name, server)
}

func TestWhereAContextIsMerged(t *testing.T) {
	const front = "https://127.0.0.1:6451"
	huge := strings.Repeat("# a line\n", maxFile/9+1)
	for _, c := range []struct {
		name    string
		files   []string // their contents; "-" is not there
		context string
		use     bool
		into    int    // which file is written
		uses    bool   // it is the current context then
		refused string // a part of the sentence, in place of the two
	}{
		{"no file", []string{"-"}, "", false, 0, true, ""},
		{"an empty file", []string{""}, "", false, 0, true, ""},
		{"comments alone", []string{"# nothing yet"}, "", false, 0, true, ""},
		{"an empty document", []string{"---\n"}, "", false, 0, true, ""},
		{"empty lists", []string{"apiVersion: v1\nkind: Config\nclusters: null\nusers: []\ncontexts: []\ncurrent-context: \"\"\n"}, "", false, 0, true, ""},
		{"JSON", []string{`{"apiVersion":"v1","kind":"Config","clusters":[],"users":[],"contexts":[],"current-context":"a"}`}, "", false, 0, false, ""},
		{"another current one", []string{work}, "", false, 0, false, ""},
		{"asked to be the current one", []string{work}, "", true, 0, true, ""},
		{"ours from before there was a mark", []string{entry("kith", front) + "current-context: other\n"}, "", false, 0, false, ""},
		{"a context kith of another", []string{entry("kith", "https://kith.example.com")}, "", false, 0, false, "there is a context named kith already that is not Kith's"},
		{"a user kith of another", []string{"users: [{name: kith, user: {token: x}}]\n"}, "", false, 0, false, "a user named kith already"},
		{"a cluster kith of another", []string{"clusters: [{name: kith, cluster: {server: \"https://elsewhere\"}}]\n"}, "", false, 0, false, "a cluster named kith already"},
		{"a context kith of another, and another name", []string{entry("kith", "https://kith.example.com")}, "laptop", false, 0, true, ""},
		{"several files: the first that there is", []string{"-", work, entry("b", "https://b")}, "", false, 1, false, ""},
		{"several files, none there: the last", []string{"-", "-"}, "", false, 1, true, ""},
		{"several files: where it is already", []string{work, entry("kith", front)}, "", false, 1, false, ""},
		{"several files: of another in any of them", []string{work, entry("kith", "https://kith.example.com")}, "", false, 0, false, "that is not Kith's"},
		{"several files: in two of them", []string{entry("kith", front), entry("kith", front)}, "", false, 0, false, "both "},
		{"several files: the current one is said in another", []string{entry("a", "https://a"), work}, "", true, 0, false, "kubectl config use-context kith"},
		{"no YAML", []string{"clusters: [\n"}, "", false, 0, false, "is no kubeconfig that Kith understands, and was not changed"},
		{"a list", []string{"- a\n"}, "", false, 0, false, "it is not of the form `key: value`"},
		{"another kind", []string{"apiVersion: v1\nkind: Pod\n"}, "", false, 0, false, `it is of kind "Pod"`},
		{"two documents", []string{work + "---\n" + work}, "", false, 0, false, "more than one YAML document"},
		{"a key twice", []string{"contexts: []\ncontexts: []\n"}, "", false, 0, false, `it has "contexts" twice`},
		{"an entry twice", []string{"contexts: [{name: a, context: {}}, {name: a, context: {}}]\n"}, "", false, 0, false, `contexts has "a" twice`},
		{"a map where a list belongs", []string{"contexts: {a: b}\n"}, "", false, 0, false, "contexts is not a list"},
		{"an alias where a list belongs", []string{"a: &a []\ncontexts: *a\n"}, "", false, 0, false, "contexts is not a list"},
		{"no UTF-8", []string{"\xff\xfea"}, "", false, 0, false, "it is no text in UTF-8"},
		{"a key twice in an entry", []string{"users: [{name: a, user: {token: x, token: y}}]\n"}, "", false, 0, false, "would not be the same but for kith, and was not changed"},
		{"another's entry that is ours by an anchor", []string{strings.Replace(entry("kith", front), "user: {token", "user: &u {token", 1) + "x-more: *u\n"}, "", false, 0, false,
			"would not be the same but for kith, and was not changed"},
		{"a huge one", []string{huge}, "", false, 0, false, "bytes, which is no kubeconfig"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			var files []string
			for i, text := range c.files {
				files = append(files, filepath.Join(dir, ".kube", fmt.Sprint(i)))
				if text != "-" {
					put(t, files[i], text, 0o600)
				}
			}
			p, err := Make(Ask{Files: files, Access: []byte(given), Context: c.context, Use: c.use})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, want %q", err, c.refused)
				}
				return
			}
			if err != nil || p.Path != files[c.into] || p.Uses != c.uses {
				t.Fatalf("%+v, %v", p, err)
			}
			backup, err := p.Write()
			if there := c.files[c.into] != "-"; err != nil || (backup != "") != there || there && get(t, backup) != c.files[c.into] {
				t.Errorf("backup %q, %v", backup, err)
			}
			for i, text := range c.files {
				if i != c.into && text != "-" && get(t, files[i]) != text {
					t.Errorf("file %d was changed", i)
				}
			}
			config, err := clientcmd.LoadFromFile(p.Path)
			if err != nil {
				t.Fatal(err)
			}
			if context := config.Contexts[p.Context]; context == nil || config.Clusters[context.Cluster].Server != front || string(config.AuthInfos[context.AuthInfo].ClientKeyData) != "key" || (config.CurrentContext == p.Context) != c.uses {
				t.Errorf("%+v", config)
			}
			if c.name == "comments alone" && !strings.HasPrefix(get(t, p.Path), "# nothing yet\n") {
				t.Error(get(t, p.Path))
			}
			// Once more: nothing is there twice, and nothing else changes.
			before := get(t, p.Path)
			if p, err = Make(Ask{Files: files, Access: []byte(given), Context: c.context}); err != nil || !p.Replaces {
				t.Fatalf("%+v, %v", p, err)
			}
			if _, err := p.Write(); err != nil || get(t, p.Path) != before {
				t.Errorf("%v:\n%s\nand again:\n%s", err, before, get(t, p.Path))
			}
		})
	}
}

func TestALinkStaysOne(t *testing.T) {
	dir := t.TempDir()
	path, dotfiles := filepath.Join(dir, "config"), filepath.Join(dir, "dotfiles", "kube")
	put(t, dotfiles, work, 0o600)
	if err := os.Symlink("dotfiles/kube", path); err != nil {
		t.Fatal(err)
	}
	p, err := Make(Ask{Files: []string{path}, Access: []byte(given)})
	if p.Link != dotfiles {
		t.Errorf("that it is a link is not said: %q", p.Link)
	}
	if err == nil {
		_, err = p.Write()
	}
	if link, linkErr := os.Readlink(path); err != nil || linkErr != nil || link != "dotfiles/kube" || !strings.Contains(get(t, dotfiles), "name: kith\n") {
		t.Errorf("%v, %v, %q:\n%s", err, linkErr, link, get(t, dotfiles))
	}
	if err := os.Remove(dotfiles); err != nil {
		t.Fatal(err)
	}
	if _, err = Make(Ask{Files: []string{path}, Access: []byte(given)}); err == nil || !strings.Contains(err.Error(), "is a link to dotfiles/kube, which is not there") {
		t.Error(err)
	}
}

func TestWhatIsNoFileIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, pipe} {
		if _, err := Make(Ask{Files: []string{path}, Access: []byte(given)}); err == nil || !strings.Contains(err.Error(), "is not a file, and was not changed") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if os.Getuid() != 0 { // root reads everything
		path := filepath.Join(dir, "config")
		put(t, path, work, 0)
		if _, err := Make(Ask{Files: []string{path}, Access: []byte(given)}); err == nil || !strings.Contains(err.Error(), "cannot be read, and was not changed") {
			t.Error(err)
		}
	}
}

// What somebody else writes between the question and the answer is not lost.
func TestAWriteIsOfWhatWasPlanned(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	put(t, path, work, 0o600)
	plan := func() Plan {
		t.Helper()
		p, err := Make(Ask{Files: []string{path}, Access: []byte(given)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := plan()
	put(t, path, work+"# more\n", 0o600)
	if _, err := p.Write(); err == nil || !strings.Contains(err.Error(), "was changed meanwhile") || get(t, path) != work+"# more\n" {
		t.Errorf("%v:\n%s", err, get(t, path))
	}
	p = plan()
	put(t, path+".lock", "", 0) // kubectl's
	if _, err := p.Write(); err == nil || !strings.Contains(err.Error(), "another program is writing") || get(t, path) != work+"# more\n" {
		t.Errorf("%v:\n%s", err, get(t, path))
	}
	if names := list(t, dir); names != "config config.lock" {
		t.Errorf("there are %s", names)
	}
}

// A file that came into being since the question was asked is somebody's, also when nothing is in it yet.
func TestAFileThatIsNewMeanwhileIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".kube", "config")
	p, err := Make(Ask{Files: []string{path}, Access: []byte(given)})
	if err != nil || !p.New {
		t.Fatalf("%+v, %v", p, err)
	}
	put(t, path, "", 0o600)
	if _, err := p.Write(); err == nil || !strings.Contains(err.Error(), "was changed meanwhile") || get(t, path) != "" {
		t.Errorf("%v:\n%s", err, get(t, path))
	}
	again, err := Make(Ask{Files: []string{path}, Access: []byte(given)})
	if err != nil || again.Same(p) {
		t.Errorf("%+v is said to be the same, %v", again, err)
	}
}

// Renaming over a file needs no right to write it: what its owner made read-only stays, and so does what is somebody else's.
func TestAFileThatIsNotToBeWrittenIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	put(t, path, work, 0o400)
	p, err := Make(Ask{Files: []string{path}, Access: []byte(given)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write(); err == nil || err.Error() != path+" is read-only: it was left as it is" || get(t, path) != work {
		t.Errorf("%v:\n%s", err, get(t, path))
	}
	if names := list(t, filepath.Dir(path)); names != "config" {
		t.Errorf("there are %s", names)
	}
	put(t, path+"2", work, 0o660)
	info, err := os.Stat(path + "2")
	if err != nil {
		t.Fatal(err)
	}
	mine := os.Getuid()
	for euid, want := range map[int]string{mine: "", 0: "", mine + 1: "belongs to another user, number " + fmt.Sprint(mine)} {
		if got := fmt.Sprint(kept(info, euid)); got != want && (want != "" || got != "<nil>") {
			t.Errorf("user %d: %s, want %q", euid, got, want)
		}
	}
}

// sudo that keeps $HOME (-E) must not leave a ~/.kube behind that its owner cannot enter.
func TestRootWritesForTheOwnerOfTheHome(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root writes for others
	}
	home := t.TempDir()
	if err := os.Chown(home, 4321, 4322); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, ".kube", "more", "config")
	for range 2 { // anew, and over what is there
		p, err := Make(Ask{Files: []string{path}, Access: []byte(given)})
		if err == nil {
			_, err = p.Write()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, made := range []string{path, path + ".before-kith", filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if uid, gid := owner(made); uid != 4321 || gid != 4322 {
			t.Errorf("%s is of %d:%d", made, uid, gid)
		}
	}
}

func TestFilesAreKubectls(t *testing.T) {
	for _, c := range []struct{ kubeconfig, home, want string }{
		{"", "/home/anna", "/home/anna/.kube/config"},
		{"/a", "/home/anna", "/a"},
		{":/a::/b:/a:", "/home/anna", "/a /b"},
		{"", "", ""},
	} {
		got := Files(func(name string) string { return map[string]string{"KUBECONFIG": c.kubeconfig, "HOME": c.home}[name] })
		if strings.Join(got, " ") != c.want {
			t.Errorf("KUBECONFIG=%q: %v, want %s", c.kubeconfig, got, c.want)
		}
	}
	if _, err := Make(Ask{Access: []byte(given)}); err == nil || !strings.Contains(err.Error(), "neither $KUBECONFIG nor $HOME is set") {
		t.Error(err)
	}
	if _, err := Make(Ask{Files: []string{"/none"}, Access: []byte("apiVersion: v1\nkind: Config\n")}); err == nil || !strings.Contains(err.Error(), "has no current context") {
		t.Error(err)
	}
}

// No file makes it crash, lose what it does not know, or write what Kubernetes cannot read.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{work, given, "", " ", "# x\n\n# y", "---", "a: &a [*a]", "users: [{name: kith}]", "? [a]\n: b", "a: {b, c: }", "contexts:\n- name: 1\n  context: null\n", "clusters: [{name: kith, cluster: {extensions: [{name: kith.dev}]}}]"} {
		f.Add([]byte(s))
	}
	a, err := accessOf([]byte(given))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parse(text)
		if err != nil || c.foreign(Name, a.server) != "" {
			return
		}
		c.merge(a, Name, true)
		b, err := c.bytes()
		if err != nil {
			return
		}
		again, err := parse(b)
		if err != nil || again.current() != Name || again.foreign(Name, a.server) != "" {
			t.Fatalf("%v of\n%s\nfrom\n%s", err, b, text)
		}
		// All else means what it meant.
		var before, after map[string]any
		if yaml.Unmarshal(text, &before) != nil {
			return
		}
		if err := yaml.Unmarshal(b, &after); err != nil {
			t.Fatalf("%v of\n%s", err, b)
		}
		for key, was := range before {
			switch key {
			case "apiVersion", "kind", "current-context", "clusters", "users", "contexts":
				continue
			}
			if is := fmt.Sprint(after[key]); is != fmt.Sprint(was) {
				t.Fatalf("%q was %v, and is %v, of\n%s\nfrom\n%s", key, was, is, b, text)
			}
		}
	})
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func list(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

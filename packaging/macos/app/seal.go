package app

import (
	"crypto/sha1" // the first list of the format has it
	"crypto/sha256"
	"fmt"
	"strings"

	"kith.dev/packaging/macos/codesign"
)

// nested says what of a bundle is code with a signature of its own.
const nested = `^(Frameworks|SharedFrameworks|PlugIns|Plug-ins|XPCServices|Helpers|MacOS|Library/(Automator|Spotlight|LoginItems))/`

// The rules are those that codesign(1) writes, by which it looks again at what is in the bundle: it wants all of it in the list.
var (
	rules = dict{
		`^Resources/`: true, `^Resources/.*\.lproj/`: dict{"optional": true, "weight": 1000.0},
		`^Resources/.*\.lproj/locversion.plist$`: dict{"omit": true, "weight": 1100.0}, `^Resources/Base\.lproj/`: dict{"weight": 1010.0}, `^version.plist$`: true,
	}
	rules2 = dict{
		`.*\.dSYM($|/)`: dict{"weight": 11.0}, `^(.*/)?\.DS_Store$`: dict{"omit": true, "weight": 2000.0}, nested: dict{"nested": true, "weight": 10.0}, `^.*`: true,
		`^Info\.plist$`: dict{"omit": true, "weight": 20.0}, `^PkgInfo$`: dict{"omit": true, "weight": 20.0}, `^Resources/`: dict{"weight": 20.0},
		`^Resources/.*\.lproj/`: dict{"optional": true, "weight": 1000.0}, `^Resources/.*\.lproj/locversion.plist$`: dict{"omit": true, "weight": 1100.0},
		`^Resources/Base\.lproj/`: dict{"weight": 1010.0}, `^[^/]+$`: dict{"nested": true, "weight": 10.0},
		`^embedded\.provisionprofile$`: dict{"weight": 20.0}, `^version\.plist$`: dict{"weight": 20.0},
	}
)

// seal is CodeResources, which lists the files of a bundle (paths below Contents) and its helpers, so that nothing is changed or added.
func seal(files map[string][]byte, helpers map[string][]codesign.Signed) ([]byte, error) {
	first, second := dict{}, dict{}
	for path, content := range files {
		short, long := sha1.Sum(content), sha256.Sum256(content)
		if strings.HasPrefix(path, "Resources/") {
			first[path] = short[:]
		}
		if path != "Info.plist" && path != "PkgInfo" {
			second[path] = dict{"hash2": long[:]}
		}
	}
	for path, programs := range helpers {
		// What is signed ad hoc is known by the hash of its code directory, of which there is one for each processor.
		var each []string
		for _, p := range programs {
			each = append(each, fmt.Sprintf(`cdhash H"%x"`, p.CDHash))
		}
		second[path] = dict{"cdhash": programs[len(programs)-1].CDHash, "requirement": strings.Join(each, " or ")}
	}
	return encode(dict{"files": first, "files2": second, "rules": rules, "rules2": rules2})
}

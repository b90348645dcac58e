package app

import (
	"bytes"
	"regexp"

	"howett.net/plist"

	"kith.dev/core/base/places"
)

const (
	// ID is the bundle's identifier, and that of the tray in it.
	ID = "dev.kith.Kith"
	// Agent is the label under which launchd keeps kithd, and the name of its file.
	Agent = places.Label
	// oldest is the first macOS that has SMAppService.
	oldest = "13.0"
)

type dict = map[string]any

// numbers are those at the beginning of a version such as v1.2.3-4-gabcdef.
var numbers = regexp.MustCompile(`^v?(\d+)(\.\d+)?(\.\d+)?`)

// number is a version as Info.plist has it: one to three numbers. A build without a tag has none, and is 0.0.0.
func number(version string) string {
	m := numbers.FindStringSubmatch(version)
	if m == nil || m[2] == "" { // a commit can begin with digits
		return "0.0.0"
	}
	return m[1] + m[2] + m[3]
}

// info is Info.plist.
func info(version string) ([]byte, error) {
	return encode(dict{
		"CFBundleDevelopmentRegion": "en", "CFBundleInfoDictionaryVersion": "6.0", "CFBundlePackageType": "APPL", "CFBundleSupportedPlatforms": []string{"MacOSX"},
		"CFBundleIdentifier": ID, "CFBundleName": "Kith", "CFBundleDisplayName": "Kith", "CFBundleExecutable": "kith-tray", "CFBundleIconFile": "Kith",
		"CFBundleShortVersionString": number(version), "CFBundleVersion": number(version), "KithVersion": version,
		"LSMinimumSystemVersion": oldest, "LSApplicationCategoryType": "public.app-category.developer-tools",
		"LSUIElement":              true, // an item of the menu bar: none of the Dock
		"NSHumanReadableCopyright": "Apache License 2.0",
		// macOS asks the owner before a program speaks with the local network.
		"NSLocalNetworkUsageDescription": "Kith looks for the laptops around you, and speaks with those that you peer with.",
		"NSBonjourServices":              []string{"_kith._tcp"},
	})
}

// agent is the file by which launchd starts kithd when its user logs in, and again when it fails. The program is named within the
// bundle, which SMAppService knows (launchd.plist(5), BundleProgram).
func agent() ([]byte, error) {
	return encode(dict{
		"Label": Agent, "BundleProgram": "Contents/MacOS/kithd", "ProgramArguments": []string{"kithd"}, "AssociatedBundleIdentifiers": []string{ID},
		"RunAtLoad": true, "KeepAlive": dict{"SuccessfulExit": false}, "ThrottleInterval": 10, "ExitTimeOut": 20,
	})
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := plist.NewEncoderForFormat(&b, plist.XMLFormat)
	e.Indent("\t")
	err := e.Encode(v)
	b.WriteByte('\n')
	return b.Bytes(), err
}
